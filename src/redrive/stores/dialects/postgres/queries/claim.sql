-- Gives the worker the due jobs of plain queues that come first by priority, due time and id, under new leases.
-- Called by claim; every row it answers is one new attempt. Other tasks than those of the worker are left alone.
WITH RECURSIVE floor AS MATERIALIZED (
    SELECT queue COLLATE "C" AS queue, priority, task COLLATE "C" AS task, scheduled_at, id
    FROM unnest(
        :cursor_queues::text[], :cursor_priorities::bigint[], :cursor_tasks::text[], :cursor_times::timestamptz[],
        :cursor_ids::bigint[]
    ) AS given (queue, priority, task, scheduled_at, id)
    UNION ALL
    SELECT '', 0, '', '-infinity', 0
),
found AS (
    -- A loose scan, as the view redrive_lanes, from the last lane to the first. But what stands between two lanes with
    -- floors is asked for by itself, so that their dead entries are not walked; the empty name is the end.
    (
        SELECT queue, priority, task
        FROM (
            (
                SELECT job.queue, job.priority, job.task FROM redrive_jobs AS job
                WHERE job.state = 'ready' AND job.partition IS NULL AND (job.queue, job.priority, job.task) > (
                    SELECT queue, priority, task FROM floor ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
                )
                ORDER BY job.queue DESC, job.priority DESC, job.task DESC LIMIT 1
            )
            UNION ALL
            SELECT queue, priority, task FROM floor
        ) AS last
        ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
    )
    UNION ALL
    SELECT before.queue, before.priority, before.task
    FROM found
    CROSS JOIN LATERAL (
        SELECT queue, priority, task FROM floor
        WHERE (queue, priority, task) < (found.queue, found.priority, found.task)
        ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
    ) AS bound
    CROSS JOIN LATERAL (
        (
            SELECT queue, priority, task FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL
                AND (queue, priority, task) < (found.queue, found.priority, found.task)
                AND (queue, priority, task) > (bound.queue, bound.priority, bound.task)
            ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
        )
        UNION ALL
        SELECT bound.queue, bound.priority, bound.task
        ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
    ) AS before
),
lane AS MATERIALIZED (
    SELECT found.queue, found.priority, found.task,
        coalesce(floor.scheduled_at, '-infinity') AS since, coalesce(floor.id, 0) AS since_id
    FROM found
    LEFT JOIN floor
        ON floor.queue = found.queue AND floor.priority = found.priority AND floor.task = found.task
    WHERE found.queue <> '' AND (:queues::text[] IS NULL OR found.queue = ANY (:queues))
        AND (:tasks::text[] IS NULL OR found.task = ANY (:tasks))
        AND NOT EXISTS (SELECT FROM redrive_queues WHERE name = found.queue)
        AND EXISTS (SELECT FROM redrive_workers WHERE id = :worker_id::bigint AND stopped_at IS NULL)
),
share AS MATERIALIZED (
    -- How many of the first due jobs each lane has. Nothing is locked yet: of a hundred lanes no more rows are locked
    -- than are taken, and of one lane that others work on, later ones are taken and not none.
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
        ORDER BY head.priority, head.scheduled_at, head.id
        LIMIT :count
    ) AS first
    GROUP BY first.queue, first.priority, first.task, first.since, first.since_id
),
own AS MATERIALIZED (
    SELECT head.id, head.priority, head.scheduled_at
    FROM share
    CROSS JOIN LATERAL (
        SELECT id, priority, scheduled_at FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = share.queue AND priority = share.priority
            AND task = share.task
            AND (scheduled_at, id) >= (share.since, share.since_id) AND scheduled_at <= :now
        ORDER BY scheduled_at, id
        LIMIT share.size
        FOR UPDATE SKIP LOCKED
    ) AS head
),
further AS MATERIALIZED (
    -- Only where others hold so much of these lanes that too few are left: then what is free, of any lane. Rows are
    -- locked one by one in the common order, above the sort, until there are enough.
    SELECT job.id, job.priority, job.scheduled_at
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
    -- One array and not many rows, for which the planner might choose to read the whole table.
    SELECT array_agg(id ORDER BY priority, scheduled_at, id) AS ids
    FROM (SELECT * FROM own UNION ALL SELECT * FROM further) AS locked
),
leased AS MATERIALIZED (
    SELECT
        ids,
        -- The low 20 bits are random: a database that was restored hands out its numbers again, but not its leases.
        ARRAY(
            SELECT (nextval('redrive_lease_ids') << 20) | (:salt::bigint & 1048575)
            FROM generate_series(1, cardinality(ids))
        ) AS leases
    FROM taken
),
claimed AS (
    UPDATE redrive_jobs AS job SET
        state = 'running',
        hold = NULL,
        lease_id = leased.leases[array_position(leased.ids, job.id)],
        worker_id = :worker_id,
        attempt = job.attempt + 1,
        started_at = coalesce(job.started_at, :now),
        claimed_at = :now
    FROM leased
    WHERE job.id = ANY (leased.ids)
    RETURNING
        job.id, job.lease_id, job.task, job.queue, job.priority, job.worker_id, job.attempt, job.failures, job.crashes,
        job.snoozes, coalesce(job.by_rule, '{}') AS by_rule, job.last_delay, job.started_at, job.claimed_at,
        job.parent_id, job.partition, job.key, job.key_until, job.origin, job.scheduled_at, job.unreadable_at, job.salt,
        (SELECT payload FROM redrive_payloads WHERE job_id = job.id) AS payload,
        (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
),
dropped AS (
    -- As keys_drop does it. But this statement is a transaction by itself, and a key goes when its job starts.
    DELETE FROM redrive_keys
    WHERE kind = 'unique' AND job_id = ANY (ARRAY(SELECT id FROM claimed WHERE key_until = 'start'))
)
SELECT * FROM claimed
