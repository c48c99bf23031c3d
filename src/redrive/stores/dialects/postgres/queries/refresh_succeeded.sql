-- Write the success of these attempts into their items, if they are the present ones, and return these items.
-- Called when jobs succeed, for items without policies of their own. PostgreSQL locks them in the common order.
WITH held AS MATERIALIZED (
    SELECT thing.place
    FROM (SELECT key FROM unnest(:keys::text[]) AS key ORDER BY key) AS given
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM redrive_refreshes WHERE schedule = :schedule AND key = given.key FOR UPDATE
    ) AS thing
)
UPDATE redrive_refreshes AS thing SET
    timing = :timing,
    refresh_at = :refresh_at::timestamptz,
    planned_at = :planned_at::timestamptz,
    completed = :completed::boolean,
    deadline_at = NULL,
    due_at = NULL,
    failing_since = NULL,
    succeeded_at = :succeeded_at::timestamptz,
    sweep_at = NULL,
    attempt_no = 0,
    attempts_since_success = 0,
    job_id = NULL
FROM held
-- A row that another transaction changed while this statement waited for its lock is not found; it is moved one by one.
WHERE thing.ctid = held.place
    AND thing.job_id = ANY (:job_ids::bigint[])
    -- As in settle_succeeded: the planner must not use the index of items by timing.
    AND coalesce(thing.own, '') = ''
    AND thing.started_at < :now::timestamptz
RETURNING thing.key
