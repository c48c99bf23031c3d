-- Write that events have ended. The content of a refused one is kept for operators.
-- Called by settle, take_turns and skip.
UPDATE redrive_moves AS move SET
    status = given.status,
    finished_at = given.finished_at,
    attempts = given.attempts,
    error = given.error,
    payload = CASE WHEN given.status = 'refused' THEN move.payload END
FROM unnest(
    :id::bigint[], :status::text[], :finished_at::timestamptz[], :attempts::integer[], :error::text[]
) AS given (id, status, finished_at, attempts, error)
WHERE move.id = ANY (:id) AND move.id = given.id
