-- Return these items of a refresh, and lock them until the transaction ends.
-- Called by every operation that moves items by key. SQLite needs no lock.
SELECT
    schedule, key, NULL::bytea AS payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update, disabled_reason,
    completed, paused
FROM redrive_refreshes
WHERE schedule = :schedule AND key = ANY (:keys::text[])
ORDER BY key
FOR UPDATE
