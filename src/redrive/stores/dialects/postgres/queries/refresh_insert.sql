-- Insert items, and return their keys without those that existed.
-- Called by track.
INSERT INTO redrive_refreshes (
    schedule, key, payload,
-- include refresh_columns.sql
)
SELECT
    schedule, key, payload,
-- include refresh_columns.sql
FROM unnest(
    :schedule::text[], :key::text[], :payload::bytea[], :own::text[], :timing::text[], :tracked_at::timestamptz[],
    :refresh_at::timestamptz[], :deadline_at::timestamptz[], :planned_at::timestamptz[], :started_at::timestamptz[],
    :due_at::timestamptz[], :failing_since::timestamptz[], :succeeded_at::timestamptz[], :sweep_at::timestamptz[],
    :attempt_no::integer[], :attempts_since_success::integer[], :job_id::bigint[], :disabled_until_update::boolean[],
    :disabled_reason::text[], :completed::boolean[], :paused::boolean[]
) AS given (
    schedule, key, payload,
-- include refresh_columns.sql
)
ON CONFLICT (schedule, key) DO NOTHING
RETURNING key
