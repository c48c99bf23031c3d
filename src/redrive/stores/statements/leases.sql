-- The statements of operations/leases.py.

-- name: worker_beat
-- Extend the lease of a worker, and never shorten it; return its id if it is registered.
-- After a silence of two thirds of its lease, the worker counts as resumed.
-- postgres
UPDATE redrive_workers SET
    heartbeat_at = :now::timestamptz,
    expires_at = greatest(expires_at, :expires_at::timestamptz),
    resumed_at = CASE WHEN 3 * (:now - heartbeat_at) >= 2 * (:expires_at - :now) THEN :now ELSE resumed_at END
WHERE id = :id::bigint AND stopped_at IS NULL
RETURNING id
-- sqlite
UPDATE redrive_workers SET
    heartbeat_at = :now,
    expires_at = max(expires_at, :expires_at),
    resumed_at = CASE WHEN 3 * (:now - heartbeat_at) >= 2 * (:expires_at - :now) THEN :now ELSE resumed_at END
WHERE id = :id AND stopped_at IS NULL
RETURNING id

-- fragment: claimed
-- A claim, of redrive_jobs, on PostgreSQL AS job.
-- postgres
    job.id, job.lease_id, job.task, job.queue, job.priority, job.worker_id, job.attempt, job.failures, job.crashes,
    job.snoozes, coalesce(job.by_rule, '{}') AS by_rule, job.last_delay, job.started_at, job.claimed_at, job.parent_id,
    job.partition, job.key, job.key_until, job.origin, job.scheduled_at, job.unreadable_at, job.salt,
    (SELECT payload FROM redrive_payloads WHERE job_id = job.id) AS payload,
    (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
-- sqlite
    id, lease_id, task, queue, priority, worker_id, attempt, failures, crashes, snoozes,
    coalesce(by_rule, '[]') AS by_rule,
    last_delay, started_at, claimed_at, parent_id, partition, key, key_until, origin, scheduled_at, unreadable_at,
    salt,
    (SELECT payload FROM redrive_payloads WHERE job_id = redrive_jobs.id) AS payload,
    -- In RETURNING, SQLite uses an index for a text only if it is an expression: hence the plus.
    (SELECT document FROM redrive_policies WHERE digest = +redrive_jobs.policy) AS policy

-- fragment: lanes
-- The lanes of plain queues that have ready jobs, each with the position at which a scan of the lane starts.
-- postgres
WITH RECURSIVE cursor_of AS MATERIALIZED (
    SELECT queue COLLATE "C" AS queue, priority, task COLLATE "C" AS task, scheduled_at, id
    FROM unnest(
        :cursor_queues::text[], :cursor_priorities::bigint[], :cursor_tasks::text[], :cursor_times::timestamptz[],
        :cursor_ids::bigint[]
    ) AS given (queue, priority, task, scheduled_at, id)
    UNION ALL
    SELECT '', 0, '', '-infinity', 0
),
found AS (
    -- A loose scan, as in the view redrive_lanes, from the last lane to the first. The range between two lanes with
    -- cursors is probed by itself, so that the entries of these lanes are not scanned; the empty name is the end. A
    -- range is probed part by part, the last one first, with bounds on single columns: on PostgreSQL 15, a comparison of
    -- rows such as (a, b) > (x, y) ends a backward scan only where a changes, and so reads the lane behind the range.
    SELECT
        coalesce(job.queue, above.queue) AS queue, coalesce(job.priority, above.priority) AS priority,
        coalesce(job.task, above.task) AS task
    FROM (
        SELECT top.queue, top.priority, top.task, coalesce(
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue > top.queue
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue = top.queue AND priority > top.priority
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL
                    AND queue = top.queue AND priority = top.priority AND task > top.task
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            )
        ) AS id
        FROM (SELECT queue, priority, task FROM cursor_of ORDER BY queue DESC, priority DESC, task DESC LIMIT 1) AS top
    ) AS above
    LEFT JOIN LATERAL (SELECT queue, priority, task FROM redrive_jobs WHERE id = above.id OFFSET 0) AS job ON true
    UNION ALL
    SELECT
        coalesce(job.queue, below.queue), coalesce(job.priority, below.priority), coalesce(job.task, below.task)
    FROM (
        SELECT bound.queue, bound.priority, bound.task, coalesce(
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL
                    AND queue = found.queue AND priority = found.priority AND task < found.task
                    AND task > CASE
                        WHEN (bound.queue, bound.priority) = (found.queue, found.priority) THEN bound.task ELSE ''
                    END
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue = found.queue AND priority < found.priority
                    AND priority >= CASE
                        WHEN bound.queue = found.queue THEN bound.priority + 1 ELSE -9223372036854775808
                    END
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue < found.queue AND queue > bound.queue
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND bound.queue <> found.queue
                    AND queue = bound.queue AND priority > bound.priority
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL
                    AND (bound.queue, bound.priority) <> (found.queue, found.priority)
                    AND queue = bound.queue AND priority = bound.priority AND task > bound.task
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            )
        ) AS id
        FROM found
        CROSS JOIN LATERAL (
            SELECT queue, priority, task FROM cursor_of
            WHERE (queue, priority, task) < (found.queue, found.priority, found.task)
            ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
        ) AS bound
    ) AS below
    LEFT JOIN LATERAL (SELECT queue, priority, task FROM redrive_jobs WHERE id = below.id OFFSET 0) AS job ON true
),
lane AS MATERIALIZED (
    SELECT found.queue, found.priority, found.task,
        coalesce(cursor_of.scheduled_at, '-infinity') AS since, coalesce(cursor_of.id, 0) AS since_id
    FROM found
    LEFT JOIN cursor_of
        ON cursor_of.queue = found.queue AND cursor_of.priority = found.priority AND cursor_of.task = found.task
    WHERE found.queue <> '' AND (:queues::text[] IS NULL OR found.queue = ANY (:queues))
        AND (:excluded::text[] IS NULL OR found.queue <> ALL (:excluded))
        AND (:tasks::text[] IS NULL OR found.task = ANY (:tasks))
        AND NOT EXISTS (SELECT FROM redrive_queues WHERE name = found.queue)
)

-- name: claim
-- Give the worker the due jobs of plain queues that come first by priority, due time and id, under new leases.
-- Each returned row is one new attempt. Jobs of tasks that the worker does not have are left alone.
-- transaction: own
-- postgres
-- include lanes
,
share AS MATERIALIZED (
    -- The number of the first due jobs in each lane. No row is locked yet, so a claim from a hundred lanes locks only
    -- the rows that it takes, and a claim from one lane that other claims have locked takes later rows.
    SELECT first.queue, first.priority, first.task, first.since, first.since_id, count(*) AS size
    FROM (
        SELECT head.queue, head.priority, head.task, lane.since, lane.since_id
        FROM lane
        CROSS JOIN LATERAL (
            SELECT queue, priority, task, scheduled_at, id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
                AND (scheduled_at, id) >= (lane.since, lane.since_id) AND scheduled_at <= :now::timestamptz
            ORDER BY scheduled_at, id
            LIMIT :count::bigint
        ) AS head
        WHERE EXISTS (SELECT FROM redrive_workers WHERE id = :worker_id::bigint AND stopped_at IS NULL)
        ORDER BY head.priority, head.scheduled_at, head.id
        LIMIT :count
    ) AS first
    GROUP BY first.queue, first.priority, first.task, first.since, first.since_id
),
own AS MATERIALIZED (
    SELECT head.id
    FROM share
    CROSS JOIN LATERAL (
        SELECT id FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = share.queue AND priority = share.priority
            AND task = share.task
            AND (scheduled_at, id) >= (share.since, share.since_id) AND scheduled_at <= :now
        ORDER BY scheduled_at, id
        LIMIT share.size
        FOR UPDATE SKIP LOCKED
    ) AS head
),
further AS MATERIALIZED (
    -- Used only if other claims have locked so many rows of these lanes that too few are left: then unlocked rows of any
    -- lane. Rows are locked one by one in the common order, above the sort, until there are enough.
    SELECT job.id
    FROM redrive_jobs AS job
    WHERE (SELECT count(*) FROM own) < (SELECT sum(size) FROM share)
        AND job.id = ANY (ARRAY(
            SELECT head.id
            FROM lane
            CROSS JOIN LATERAL (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                    AND task = lane.task
                    AND (scheduled_at, id) >= (lane.since, lane.since_id) AND scheduled_at <= :now
                ORDER BY scheduled_at, id
                LIMIT :count + 1000
            ) AS head
        ))
        AND job.state = 'ready' AND job.scheduled_at <= :now AND job.id <> ALL (ARRAY(SELECT id FROM own))
    ORDER BY job.priority, job.scheduled_at, job.id
    LIMIT (SELECT :count - count(*) FROM own)
    FOR UPDATE SKIP LOCKED
),
taken AS MATERIALIZED (
    -- One array instead of many rows: for rows the planner might choose to read the whole table.
    SELECT array_agg(id) AS ids FROM (SELECT id FROM own UNION ALL SELECT id FROM further) AS locked
),
claimed AS (
    UPDATE redrive_jobs AS job SET
        state = 'running',
        hold = NULL,
        -- The low 20 bits are random, so that a restored database repeats its numbers but not its leases.
        lease_id = (nextval('redrive_lease_ids') << 20) | (:salt::bigint & 1048575),
        worker_id = :worker_id,
        attempt = job.attempt + 1,
        started_at = coalesce(job.started_at, :now),
        claimed_at = :now
    FROM taken
    WHERE job.id = ANY (taken.ids)
        -- Expired jobs stay, for the duty that cancels them. The row is locked already.
        AND (job.expires_at IS NULL OR job.expires_at > :now OR job.started_at IS NOT NULL)
    RETURNING
-- include claimed
),
dropped AS (
    -- As in keys_drop. This statement is a transaction by itself, and a key is released when its job starts.
    DELETE FROM redrive_keys
    -- As in settle_succeeded: the planner must not use the index of keys by their kind.
    WHERE kind <> 'idempotency' AND job_id = ANY (ARRAY(SELECT id FROM claimed WHERE key_until = 'start'))
)
SELECT * FROM claimed
-- sqlite
WITH first_of_all AS (
    SELECT job.id
    FROM redrive_lanes AS lane,
        json_each((
            SELECT json_group_array(head.id)
            FROM (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                    AND task = lane.task AND scheduled_at <= :now
                ORDER BY scheduled_at, id
                LIMIT :count
            ) AS head
        )) AS candidate
    JOIN redrive_jobs AS job ON job.id = candidate.value
    WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
        AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
        AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
        AND EXISTS (SELECT 1 FROM redrive_workers WHERE id = :worker_id AND stopped_at IS NULL)
    ORDER BY job.priority, job.scheduled_at, job.id
    LIMIT :count
)
UPDATE redrive_jobs SET
    state = 'running',
    hold = NULL,
    -- The block of numbers was taken by the statement before. The low 20 bits are random, so that a restored database
    -- repeats its numbers but not its leases.
    lease_id = (((SELECT value FROM redrive_sequences WHERE name = 'lease') - :count + 1 + due.key) << 20)
        | (:salt & 1048575),
    worker_id = :worker_id,
    attempt = attempt + 1,
    started_at = coalesce(started_at, :now),
    claimed_at = :now
FROM json_each((SELECT json_group_array(id) FROM first_of_all)) AS due
WHERE redrive_jobs.id = due.value
    -- Expired jobs stay, for the duty that cancels them. The row is read already.
    AND (expires_at IS NULL OR expires_at > :now OR started_at IS NOT NULL)
RETURNING
-- include claimed

-- name: heads
-- Return the due jobs of plain queues that come first by priority, due time and id; the claim may take them.
-- They are sorted together with the due jobs of limited queues.
-- postgres
SELECT head.id, head.partition, head.priority, head.scheduled_at, NULL::bigint AS head_id
FROM redrive_lanes AS lane
CROSS JOIN LATERAL (
    SELECT id, partition, priority, scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
        AND task = lane.task AND scheduled_at <= :now::timestamptz
    ORDER BY scheduled_at, id
    LIMIT :count::bigint
) AS head
WHERE (:queues::text[] IS NULL OR lane.queue = ANY (:queues))
    AND (:excluded::text[] IS NULL OR lane.queue <> ALL (:excluded))
    AND (:tasks::text[] IS NULL OR lane.task = ANY (:tasks))
ORDER BY head.priority, head.scheduled_at, head.id
LIMIT :count
-- sqlite
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL AS head_id
FROM redrive_lanes AS lane,
    json_each((
        SELECT json_group_array(head.id)
        FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :count
        ) AS head
    )) AS candidate
JOIN redrive_jobs AS job ON job.id = candidate.value
WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
    AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
    AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
ORDER BY job.priority, job.scheduled_at, job.id
LIMIT :count

-- name: claim_chosen
-- Give the worker these jobs, each under a new lease; an attempt of a limited queue occupies a slot.
-- Jobs that another claim has just taken are left out.
-- postgres
WITH taken AS MATERIALIZED (
    SELECT array_agg(locked.id) AS ids
    FROM (
        SELECT id FROM redrive_jobs
        WHERE id = ANY (:ids::bigint[]) AND state = 'ready'
            AND EXISTS (SELECT FROM redrive_workers WHERE id = :worker_id::bigint AND stopped_at IS NULL)
        FOR UPDATE SKIP LOCKED
    ) AS locked
)
UPDATE redrive_jobs AS job SET
    state = 'running',
    hold = NULL,
    slot = (
        SELECT known.name FROM redrive_queues AS known
        WHERE known.name = job.queue AND (known.concurrency IS NOT NULL OR known.per_partition IS NOT NULL)
    ),
    -- As in claim.
    lease_id = (nextval('redrive_lease_ids') << 20) | (:salt::bigint & 1048575),
    worker_id = :worker_id,
    attempt = job.attempt + 1,
    started_at = coalesce(job.started_at, :now::timestamptz),
    claimed_at = :now
FROM taken
WHERE job.id = ANY (taken.ids)
    -- As in claim.
    AND (job.expires_at IS NULL OR job.expires_at > :now OR job.started_at IS NOT NULL)
RETURNING
-- include claimed
-- sqlite
UPDATE redrive_jobs SET
    state = 'running',
    hold = NULL,
    slot = (
        SELECT known.name FROM redrive_queues AS known
        WHERE known.name = redrive_jobs.queue AND (known.concurrency IS NOT NULL OR known.per_partition IS NOT NULL)
    ),
    -- As in claim: a number of the block that was taken before, and 20 random bits.
    lease_id = (((SELECT value FROM redrive_sequences WHERE name = 'lease') - :count + 1 + chosen.key) << 20)
        | (:salt & 1048575),
    worker_id = :worker_id,
    attempt = attempt + 1,
    started_at = coalesce(started_at, :now),
    claimed_at = :now
FROM json_each(:ids) AS chosen
WHERE redrive_jobs.id = chosen.value AND redrive_jobs.state = 'ready'
    -- As in claim.
    AND (expires_at IS NULL OR expires_at > :now OR started_at IS NOT NULL)
    AND EXISTS (SELECT 1 FROM redrive_workers WHERE id = :worker_id AND stopped_at IS NULL)
RETURNING
-- include claimed

-- name: jobs_lock
-- Return these jobs, and lock them until the transaction ends, in the order of their ids.
-- For the family of a run. SQLite needs no lock.
-- postgres
SELECT
-- include job_columns
FROM redrive_jobs AS job
WHERE id = ANY (:ids::bigint[])
ORDER BY id
FOR UPDATE
-- sqlite
SELECT
-- include job_columns
FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids))

-- fragment: succeeded
-- The columns of a job that a success changes, besides the time.
-- both
    state = 'succeeded',
    crashes = 0,
    hold = NULL,
    slot = NULL,
    success_lease_id = lease_id,
    success_worker_id = worker_id,
    lease_id = NULL,
    worker_id = NULL,
    note = NULL,
    fingerprint = NULL,
    reason = NULL,
    error = NULL

-- name: settle_succeeded
-- Finish each of these jobs if its lease is still current, and return these leases.
-- A lease id belongs to one job only, so the two lists need no pairing.
-- postgres
UPDATE redrive_jobs SET
    finished_at = :now::timestamptz,
-- include succeeded
-- A job with a lease runs or waits. For state = 'running' the planner might scan the index of running jobs, in which the
-- entries of ended jobs stay as long as another session holds a snapshot.
WHERE id = ANY (:job_ids::bigint[]) AND lease_id = ANY (:lease_ids::bigint[]) AND state <> 'waiting'
RETURNING success_lease_id
-- sqlite
UPDATE redrive_jobs SET
    finished_at = :now,
-- include succeeded
WHERE id IN (SELECT value FROM json_each(:job_ids))
    AND lease_id IN (SELECT value FROM json_each(:lease_ids))
    AND state = 'running'
RETURNING success_lease_id

-- fragment: complete_result
-- Write the result of a job whose lease is current, if there is one.
-- sqlite
INSERT INTO redrive_results (job_id, result)
SELECT id, :result FROM redrive_jobs
WHERE id = :job_id AND lease_id = :lease_id AND state = 'running' AND :result IS NOT NULL
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result

-- name: complete
-- Finish a job, with its result, if its lease is still current, and return a row if it was.
-- In the transaction of its handler.
-- rows: counted
-- first: complete_result
-- postgres
WITH done AS (
    UPDATE redrive_jobs SET
        finished_at = coalesce(:now::timestamptz, (SELECT now FROM redrive_clock)),
-- include succeeded
    WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint AND state <> 'waiting'
    RETURNING id
),
result AS (
    INSERT INTO redrive_results (job_id, result)
    SELECT id, :result::bytea FROM done WHERE :result IS NOT NULL
    ON CONFLICT (job_id) DO UPDATE SET result = excluded.result
)
SELECT 1 FROM done
-- sqlite
UPDATE redrive_jobs SET
    finished_at = coalesce(:now, (SELECT now FROM redrive_clock)),
-- include succeeded
WHERE id = :job_id AND lease_id = :lease_id AND state = 'running'
RETURNING 1

-- name: workers_late
-- Extend the leases of workers with late heartbeats by the time in which no sweep has run.
-- Of a longer gap only the interval of the sweeps counts as silence.
-- postgres
UPDATE redrive_workers SET
    expires_at = expires_at
        + greatest(interval '0', :now - greatest(heartbeat_at, late_at) - :every),
    late_at = :now
WHERE id IN (
    SELECT id FROM redrive_workers
    WHERE stopped_at IS NULL AND heartbeat_at <= :now::timestamptz - :every::interval
    FOR UPDATE SKIP LOCKED
)
-- sqlite
UPDATE redrive_workers SET
    expires_at = expires_at + max(0, :now - max(heartbeat_at, coalesce(late_at, heartbeat_at)) - :every),
    late_at = :now
WHERE stopped_at IS NULL AND heartbeat_at <= :now - :every

-- name: workers_bury
-- Delete workers from the registry whose leases have expired or that are known to be dead.
-- Before their jobs are read. A worker that was only suspended registers again.
-- postgres
UPDATE redrive_workers SET stopped_at = :now::timestamptz
WHERE id IN (
    SELECT id FROM redrive_workers
    WHERE stopped_at IS NULL AND (expires_at <= :now OR id = ANY (:gone::bigint[]))
    FOR UPDATE SKIP LOCKED
)
-- sqlite
UPDATE redrive_workers SET stopped_at = :now
WHERE stopped_at IS NULL AND (expires_at <= :now OR id IN (SELECT value FROM json_each(:gone)))

-- fragment: attempt_columns
-- A claim without its payload, of redrive_jobs AS job.
-- postgres
    job.id, job.lease_id, job.task, job.queue, job.priority, job.worker_id, job.attempt, job.failures, job.crashes,
    job.snoozes, coalesce(job.by_rule, '{}') AS by_rule, job.last_delay, job.started_at, job.claimed_at, job.parent_id,
    job.partition, job.key, job.key_until, job.origin, job.scheduled_at, job.unreadable_at, job.salt,
    NULL::bytea AS payload,
    (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
-- sqlite
    job.id, job.lease_id, job.task, job.queue, job.priority, job.worker_id, job.attempt, job.failures, job.crashes,
    job.snoozes, coalesce(job.by_rule, '[]') AS by_rule, job.last_delay, job.started_at, job.claimed_at, job.parent_id,
    job.partition, job.key, job.key_until, job.origin, job.scheduled_at, job.unreadable_at, job.salt,
    NULL AS payload,
    (SELECT document FROM redrive_policies WHERE digest = job.policy) AS policy

-- name: lost
-- Return claims of dead workers, and claims that exceeded their hard timeout.
-- Up to a budget, without sorting; jobs that another sweep or a settle has locked are left out.
-- postgres
SELECT
-- include attempt_columns
FROM redrive_jobs AS job
LEFT JOIN redrive_workers AS worker ON worker.id = job.worker_id AND worker.stopped_at IS NULL
WHERE job.state = 'running'
    AND (job.hold IS NULL OR job.scheduled_at <= :now::timestamptz)
    AND (
        worker.id IS NULL
        OR (
            job.claimed_at + coalesce(job.timeout_for, :limit_for::interval) + :grace::interval <= :now::timestamptz
            -- A worker that was cut off from the database has some time to settle attempts that have ended.
            AND coalesce(worker.resumed_at + :grace <= :now, true)
            AND (:every::interval IS NULL OR worker.heartbeat_at > :now - :every)
        )
    )
ORDER BY job.worker_id, job.id
LIMIT :budget::bigint
FOR UPDATE OF job SKIP LOCKED
-- sqlite
SELECT
-- include attempt_columns
FROM redrive_jobs AS job
LEFT JOIN redrive_workers AS worker ON worker.id = job.worker_id AND worker.stopped_at IS NULL
WHERE job.state = 'running'
    AND (job.hold IS NULL OR job.scheduled_at <= :now)
    AND (
        worker.id IS NULL
        OR (
            job.claimed_at + coalesce(job.timeout_for, :limit_for) + :grace <= :now
            -- A worker that was cut off from the database has some time to settle attempts that have ended.
            AND coalesce(worker.resumed_at + :grace <= :now, 1)
            AND (:every IS NULL OR worker.heartbeat_at > :now - :every)
        )
    )
ORDER BY job.worker_id, job.id
LIMIT :budget

-- name: next_due
-- Return the instant, as clock does, and the due times of the earliest ready jobs of plain and of limited queues.
-- It shows how long an idle worker may rest; one statement, because it runs often.
-- transaction: none
-- postgres
-- include lanes
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (
        SELECT min(head.scheduled_at)
        FROM lane
        CROSS JOIN LATERAL (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
                AND (scheduled_at, id) >= (lane.since, lane.since_id)
            ORDER BY scheduled_at, id
            LIMIT 1
        ) AS head
    ) AS due_at,
    (
        SELECT min(CASE WHEN lane.is_parted THEN (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
            ORDER BY scheduled_at
            LIMIT 1
        ) ELSE (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
            ORDER BY scheduled_at
            LIMIT 1
        ) END)
        FROM redrive_special_lanes AS lane
        WHERE (:queues IS NULL OR lane.queue = ANY (:queues))
            AND (:excluded IS NULL OR lane.queue <> ALL (:excluded)) AND (:tasks IS NULL OR lane.task = ANY (:tasks))
    ) AS special_at
FROM redrive_clock AS clock
-- sqlite
SELECT
    coalesce(:now, (SELECT now FROM redrive_clock)) AS now,
    (
        SELECT min((
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
            ORDER BY scheduled_at
            LIMIT 1
        ))
        FROM redrive_lanes AS lane
        WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
            AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
            AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
    ) AS due_at,
    (
        SELECT min(CASE WHEN lane.is_parted THEN (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
            ORDER BY scheduled_at
            LIMIT 1
        ) ELSE (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
            ORDER BY scheduled_at
            LIMIT 1
        ) END)
        FROM redrive_special_lanes AS lane
        WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
            AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
            AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
    ) AS special_at
