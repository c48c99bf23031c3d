-- Return items of a refresh that are due, the earliest first, without those that others have locked.
-- Called by start_due.
SELECT
    schedule, key, payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update, disabled_reason,
    completed, paused
FROM redrive_refreshes
WHERE schedule = :schedule AND refresh_at IS NOT NULL AND refresh_at <= :now::timestamptz
    AND job_id IS NULL AND NOT paused
ORDER BY refresh_at
LIMIT :count::bigint
FOR UPDATE SKIP LOCKED
