-- Write that events have ended.
-- Called by settle, take_turns and skip.
UPDATE redrive_moves SET
    status = :status,
    finished_at = :finished_at,
    attempts = :attempts,
    error = :error,
    payload = NULL
WHERE id = :id
