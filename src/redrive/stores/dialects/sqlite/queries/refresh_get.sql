-- Return one item.
-- Called by get, and before its job is locked.
SELECT
    schedule, key, payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update, disabled_reason,
    completed, paused
FROM redrive_refreshes
WHERE schedule = :schedule AND key = :key
