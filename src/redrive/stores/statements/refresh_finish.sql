-- The statements of operations/refresh/finish.py.

-- name: refresh_succeeded
-- Write the success of these attempts into their items, if they are the present ones, and return these items.
-- For items without policies of their own. PostgreSQL locks them in the common order.
-- postgres
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
-- sqlite
UPDATE redrive_refreshes SET
    timing = :timing,
    refresh_at = :refresh_at,
    planned_at = :planned_at,
    completed = :completed,
    deadline_at = NULL,
    due_at = NULL,
    failing_since = NULL,
    succeeded_at = :succeeded_at,
    sweep_at = NULL,
    attempt_no = 0,
    attempts_since_success = 0,
    job_id = NULL
WHERE schedule = :schedule
    AND key IN (SELECT value FROM json_each(:keys))
    AND job_id IN (SELECT value FROM json_each(:job_ids))
    AND own IS NULL
    AND started_at < :now
RETURNING key

-- name: refresh_overdue
-- Return items with a deadline or a time limit in the past, the earliest first.
-- Their jobs are locked before them.
-- postgres
SELECT
    schedule, key, NULL::bytea AS payload,
-- include refresh_columns
FROM redrive_refreshes
WHERE sweep_at IS NOT NULL AND sweep_at <= :now::timestamptz
ORDER BY sweep_at
LIMIT :count::bigint
-- sqlite
SELECT
    schedule, key, NULL AS payload,
-- include refresh_columns
FROM redrive_refreshes
WHERE sweep_at <= :now
ORDER BY sweep_at
LIMIT :count

-- name: open_attempts
-- Return the open attempts of these jobs.
-- The caller has locked them.
-- both
SELECT
-- include attempt_columns
FROM redrive_jobs AS job
WHERE job.id = ANY (:ids::bigint[]) AND job.lease_id IS NOT NULL

-- name: refresh_idle
-- Return those of these items that run no attempt, without those that others have locked, and lock them.
-- The caller has locked jobs already and must not wait.
-- postgres
SELECT thing.*
FROM unnest(:keys::text[]) AS given (key)
CROSS JOIN LATERAL (
    SELECT
        schedule, key, NULL::bytea AS payload,
-- include refresh_columns
    FROM redrive_refreshes
    WHERE schedule = :schedule AND key = given.key AND job_id IS NULL
    FOR UPDATE SKIP LOCKED
) AS thing
-- sqlite
SELECT
    schedule, key, NULL AS payload,
-- include refresh_columns
FROM redrive_refreshes
WHERE schedule = :schedule AND key IN (SELECT value FROM json_each(:keys)) AND job_id IS NULL
