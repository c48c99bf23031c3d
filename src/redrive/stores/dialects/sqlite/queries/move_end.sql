-- Write that events have ended. The content of a refused one is kept for operators.
-- Called by settle, take_turns and skip.
UPDATE redrive_moves SET
    status = :status,
    finished_at = :finished_at,
    attempts = :attempts,
    error = :error,
    payload = CASE WHEN :status = 'refused' THEN payload END
WHERE id = :id
