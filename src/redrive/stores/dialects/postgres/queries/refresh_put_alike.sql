-- Write the state of items that differ only in their jobs, which are consecutive in this order.
-- Called by every move.
UPDATE redrive_refreshes AS thing SET
    timing = :timing::text,
    refresh_at = :refresh_at::timestamptz,
    deadline_at = :deadline_at::timestamptz,
    planned_at = :planned_at::timestamptz,
    started_at = :started_at::timestamptz,
    due_at = :due_at::timestamptz,
    failing_since = :failing_since::timestamptz,
    succeeded_at = :succeeded_at::timestamptz,
    sweep_at = :sweep_at::timestamptz,
    attempt_no = :attempt_no::integer,
    attempts_since_success = :attempts_since_success::integer,
    disabled_until_update = :disabled_until_update::boolean,
    disabled_reason = :disabled_reason::text,
    completed = :completed::boolean,
    paused = :paused::boolean,
    job_id = given.job_id
FROM unnest(:keys::text[], :job_ids::bigint[]) AS given (key, job_id)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_refreshes WHERE schedule = :schedule AND key = given.key OFFSET 0
) AS found
WHERE thing.ctid = found.place
