-- Let steps of a run wait for another execution.
-- Called by redrive, retry and fork, for steps that were undone.
UPDATE redrive_steps SET
    outcome = 'waiting',
    tries = 0,
    due_at = :now::timestamptz,
    digest = NULL,
    result = NULL,
    error = :error::text,
    history = NULL
WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[])
