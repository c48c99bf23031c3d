-- Insert items, and return their keys without those that existed.
-- Called by track.
-- many: rows
INSERT INTO redrive_refreshes (
    schedule, key, payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at, due_at,
    failing_since, succeeded_at, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update,
    disabled_reason, completed, paused
) VALUES (
    :schedule, :key, :payload, :own, :timing, :tracked_at, :refresh_at, :deadline_at, :planned_at, :started_at,
    :due_at, :failing_since, :succeeded_at, :sweep_at, :attempt_no, :attempts_since_success, :job_id,
    :disabled_until_update, :disabled_reason, :completed, :paused
)
ON CONFLICT (schedule, key) DO NOTHING
RETURNING key
