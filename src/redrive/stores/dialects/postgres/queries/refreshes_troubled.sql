-- Return items of a refresh that failed last time or were given up, by key.
-- Called by select.
SELECT
    schedule, key, NULL::bytea AS payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update, disabled_reason,
    completed, paused
FROM redrive_refreshes
WHERE schedule = :schedule AND key > :after
    AND (disabled_until_update OR attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL))
ORDER BY key
LIMIT :count::bigint
