-- Let steps of a run wait for another execution, and calls for the ends of their child runs.
-- Called by redrive, retry and fork, for steps that were undone, and for calls of runs that have failed.
UPDATE redrive_steps SET
    outcome = 'waiting',
    tries = 0,
    due_at = CASE WHEN kind = 'step' THEN :now::timestamptz END,
    digest = NULL,
    result = NULL,
    error = CASE WHEN kind = 'step' THEN :error::text END,
    history = NULL
WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[])
