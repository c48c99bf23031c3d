-- Write that the transitions of events have succeeded.
-- Called by settle.
UPDATE redrive_moves SET
    status = 'moved',
    finished_at = :now,
    attempts = :attempts,
    error = NULL,
    payload = NULL
WHERE id IN (SELECT value FROM json_each(:ids))
