-- Write how far an operation is.
-- Called by carry_out.
UPDATE redrive_operations SET
    state = :state,
    matched = :matched,
    last_id = :last_id,
    done = :done,
    kept = :kept,
    next_at = :next_at,
    ended_at = :ended_at,
    last_error = :last_error
WHERE id = :id
