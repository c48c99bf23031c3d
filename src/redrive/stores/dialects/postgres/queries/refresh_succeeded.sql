-- Write the success of these attempts into their items, if they are the present ones, and return these items.
-- Called when jobs succeed, for items without policies of their own. PostgreSQL locks them in the common order.
WITH held AS MATERIALIZED (
    SELECT key FROM redrive_refreshes
    WHERE schedule = :schedule AND key = ANY (:keys::text[])
    ORDER BY key
    FOR UPDATE
)
UPDATE redrive_refreshes AS thing SET
    timing = :timing,
    refresh_at = :refresh_at::timestamptz,
    planned_at = :planned_at::timestamptz,
    completed = :completed::boolean,
    deadline_at = NULL,
    due_at = NULL,
    failing_since = NULL,
    sweep_at = NULL,
    attempt_no = 0,
    attempts_since_success = 0,
    job_id = NULL
FROM held
WHERE thing.schedule = :schedule
    AND thing.key = held.key
    AND thing.job_id = ANY (:job_ids::bigint[])
    AND thing.own IS NULL
    AND thing.started_at < :now::timestamptz
RETURNING thing.key
