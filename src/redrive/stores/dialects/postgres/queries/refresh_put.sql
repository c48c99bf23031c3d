-- Write the state of items.
-- Called by every move.
UPDATE redrive_refreshes AS thing SET
    timing = given.timing,
    refresh_at = given.refresh_at,
    deadline_at = given.deadline_at,
    planned_at = given.planned_at,
    started_at = given.started_at,
    due_at = given.due_at,
    failing_since = given.failing_since,
    succeeded_at = given.succeeded_at,
    sweep_at = given.sweep_at,
    attempt_no = given.attempt_no,
    attempts_since_success = given.attempts_since_success,
    job_id = given.job_id,
    disabled_until_update = given.disabled_until_update,
    disabled_reason = given.disabled_reason,
    completed = given.completed,
    paused = given.paused
FROM unnest(
    :schedule::text[], :key::text[], :timing::text[],
    :refresh_at::timestamptz[], :deadline_at::timestamptz[], :planned_at::timestamptz[], :started_at::timestamptz[],
    :due_at::timestamptz[], :failing_since::timestamptz[], :succeeded_at::timestamptz[], :sweep_at::timestamptz[],
    :attempt_no::integer[], :attempts_since_success::integer[], :job_id::bigint[], :disabled_until_update::boolean[],
    :disabled_reason::text[], :completed::boolean[], :paused::boolean[]
) AS given (
    schedule, key, timing, refresh_at, deadline_at, planned_at, started_at, due_at,
    failing_since, succeeded_at, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update,
    disabled_reason, completed, paused
)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_refreshes WHERE schedule = given.schedule AND key = given.key OFFSET 0
) AS found
WHERE thing.ctid = found.place
