-- Return those of these items that run no attempt, without those that others have locked, and lock them.
-- Called by end_overdue, which has locked jobs already and must not wait.
SELECT
    schedule, key, NULL AS payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update, disabled_reason,
    completed, paused
FROM redrive_refreshes
WHERE schedule = :schedule AND key IN (SELECT value FROM json_each(:keys)) AND job_id IS NULL
