-- Return items of a refresh with times that another policy than its present one has set.
-- Called by replan.
SELECT
    schedule, key, NULL::bytea AS payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update, disabled_reason,
    completed, paused
FROM redrive_refreshes
WHERE schedule = :schedule AND own IS NULL AND timing <> :timing AND key = ANY (ARRAY(
    (
        SELECT key FROM redrive_refreshes
        WHERE own IS NULL AND schedule = :schedule AND timing < :timing
        LIMIT :count::bigint
    )
    UNION ALL
    (
        SELECT key FROM redrive_refreshes
        WHERE own IS NULL AND schedule = :schedule AND timing > :timing
        LIMIT :count::bigint
    )
))
LIMIT :count::bigint
FOR UPDATE SKIP LOCKED
