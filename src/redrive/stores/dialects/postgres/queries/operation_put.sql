-- Write how far an operation is.
-- Called by carry_out.
UPDATE redrive_operations SET
    state = :state::text,
    matched = :matched::bigint,
    last_id = :last_id::bigint,
    done = :done::bigint,
    kept = :kept::bigint,
    next_at = :next_at::timestamptz,
    ended_at = :ended_at::timestamptz,
    last_error = :last_error::text
WHERE id = :id::bigint
