-- Return items of a refresh by key.
-- Called by select.
SELECT
    schedule, key, NULL AS payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update, disabled_reason,
    completed, paused
FROM redrive_refreshes
WHERE schedule = :schedule AND key > :after
ORDER BY key
LIMIT :count
