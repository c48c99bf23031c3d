    -- The fields of an item after its key and payload, of redrive_refreshes.
    own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, succeeded_at, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update,
    disabled_reason, completed, paused
