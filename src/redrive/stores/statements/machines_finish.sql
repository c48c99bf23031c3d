-- The statements of operations/machines/finish.py.

-- name: moves_these
-- Return events by their ids.
-- both
SELECT
-- include move_columns
FROM redrive_moves
WHERE id = ANY (:ids::bigint[])

-- name: moves_done
-- Write that the transitions of events have succeeded.
-- both
UPDATE redrive_moves SET
    status = 'moved',
    finished_at = :now::timestamptz,
    attempts = :attempts::integer,
    error = NULL,
    payload = NULL
WHERE id = ANY (:ids::bigint[])
