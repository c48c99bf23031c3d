-- Let steps of a run wait for another execution.
-- Called by redrive, retry and fork, for steps that were undone.
UPDATE redrive_steps SET
    outcome = 'waiting',
    tries = 0,
    due_at = :now,
    digest = NULL,
    result = NULL,
    error = :error,
    history = NULL
WHERE run_id = :run_id AND path IN (SELECT value FROM json_each(:paths))
