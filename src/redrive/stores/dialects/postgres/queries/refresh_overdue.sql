-- Return items with a deadline or a time limit in the past, the earliest first.
-- Called by end_overdue, which locks their jobs before them.
SELECT
    schedule, key, NULL::bytea AS payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update, disabled_reason,
    completed, paused
FROM redrive_refreshes
WHERE sweep_at IS NOT NULL AND sweep_at <= :now::timestamptz
ORDER BY sweep_at
LIMIT :count::bigint
