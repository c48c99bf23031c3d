-- Write the state of items.
-- Called by every move.
UPDATE redrive_refreshes SET
    timing = :timing,
    refresh_at = :refresh_at,
    deadline_at = :deadline_at,
    planned_at = :planned_at,
    started_at = :started_at,
    due_at = :due_at,
    failing_since = :failing_since,
    succeeded_at = :succeeded_at,
    sweep_at = :sweep_at,
    attempt_no = :attempt_no,
    attempts_since_success = :attempts_since_success,
    job_id = :job_id,
    disabled_until_update = :disabled_until_update,
    disabled_reason = :disabled_reason,
    completed = :completed,
    paused = :paused
WHERE schedule = :schedule AND key = :key
