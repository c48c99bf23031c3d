-- The statements of operations/refresh/items.py.

-- fragment: refresh_columns
-- The fields of an item after its key and payload, of redrive_refreshes.
-- both
    own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at,
    due_at, failing_since, succeeded_at, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update,
    disabled_reason, completed, paused

-- name: refresh_rows
-- Return these items of a refresh, and lock them until the transaction ends.
-- SQLite needs no lock.
-- postgres
SELECT thing.*
FROM (SELECT key FROM unnest(:keys::text[]) AS key ORDER BY key) AS given
CROSS JOIN LATERAL (
    SELECT
        schedule, key, NULL::bytea AS payload,
-- include refresh_columns
    FROM redrive_refreshes
    WHERE schedule = :schedule AND key = given.key
    FOR UPDATE
) AS thing
-- sqlite
SELECT
    schedule, key, NULL AS payload,
-- include refresh_columns
FROM redrive_refreshes
WHERE schedule = :schedule AND key IN (SELECT value FROM json_each(:keys))

-- name: refresh_put_alike
-- Write the state of items that differ only in their jobs, which are consecutive in this order.
-- postgres
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
-- sqlite
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
    disabled_until_update = :disabled_until_update,
    disabled_reason = :disabled_reason,
    completed = :completed,
    paused = :paused,
    -- Finding each one in the list would scan the list from its beginning for every item.
    job_id = (:job_ids ->> 0) + found.key
FROM json_each((
    -- The join reads the keys first and then the items, not the other way round.
    SELECT json_group_array(thing.rowid)
    FROM json_each(:keys) AS given
    CROSS JOIN redrive_refreshes AS thing
    WHERE thing.schedule = :schedule AND thing.key = given.value
)) AS found
WHERE redrive_refreshes.rowid = found.value

-- name: refresh_put
-- Write the state of items.
-- postgres
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
-- sqlite
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

-- name: refresh_get
-- Return one item.
-- It locks nothing: the job of an item is locked before the item.
-- both
SELECT
    schedule, key, payload,
-- include refresh_columns
FROM redrive_refreshes
WHERE schedule = :schedule AND key = :key

-- name: refreshes_troubled
-- Return items of a refresh that failed last time or were given up, by key.
-- both
SELECT
    schedule, key, NULL::bytea AS payload,
-- include refresh_columns
FROM redrive_refreshes
WHERE schedule = :schedule AND key > :after
    AND (disabled_until_update OR attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL))
ORDER BY key
LIMIT :count::bigint

-- name: refreshes_select
-- Return items of a refresh by key.
-- both
SELECT
    schedule, key, NULL::bytea AS payload,
-- include refresh_columns
FROM redrive_refreshes
WHERE schedule = :schedule AND key > :after
ORDER BY key
LIMIT :count::bigint

-- name: refresh_counts
-- Count the items of each refresh by state.
-- It reads all items.
-- postgres
SELECT
    schedule,
    count(*) AS tracked,
    count(job_id) AS running,
    count(*) FILTER (
        WHERE NOT disabled_until_update
            AND (attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL))
    ) AS failing,
    count(*) FILTER (WHERE disabled_until_update) AS disabled,
    count(*) FILTER (WHERE paused) AS paused,
    count(*) FILTER (WHERE completed) AS completed
FROM redrive_refreshes
GROUP BY schedule
ORDER BY schedule
-- sqlite
SELECT
    schedule,
    count(*) AS tracked,
    count(job_id) AS running,
    sum(
        NOT disabled_until_update
        AND (attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL))
    ) AS failing,
    sum(disabled_until_update) AS disabled,
    sum(paused) AS paused,
    sum(completed) AS completed
FROM redrive_refreshes
GROUP BY schedule
ORDER BY schedule

-- name: refreshes_loads
-- Count the items of each refresh, and those in trouble, both up to a limit.
-- It reads at most so many index entries for each refresh.
-- both
SELECT
    known.name AS schedule,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_refreshes WHERE schedule = known.name LIMIT :most::bigint
        ) AS counted
    ) AS tracked,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_refreshes
            WHERE schedule = known.name
                AND (disabled_until_update OR attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL))
            LIMIT :most::bigint
        ) AS counted
    ) AS troubled
FROM redrive_schedules AS known
WHERE known.kind = 'refresh'
ORDER BY known.name
