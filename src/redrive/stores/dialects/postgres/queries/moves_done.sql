-- Write that the transitions of events have succeeded.
-- Called by settle.
UPDATE redrive_moves SET
    status = 'moved',
    finished_at = :now::timestamptz,
    attempts = :attempts::integer,
    error = NULL,
    payload = NULL
WHERE id = ANY (:ids::bigint[])
