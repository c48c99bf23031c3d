-- Give the worker the due jobs of plain queues that come first by priority, due time and id, under new leases.
-- Called by claim; each returned row is one new attempt. Jobs of tasks that the worker does not have are left alone.
-- transaction: own
-- include lanes.sql
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
-- include claimed.sql
),
dropped AS (
    -- As in keys_drop. This statement is a transaction by itself, and a key is released when its job starts.
    DELETE FROM redrive_keys
    -- As in settle_succeeded: the planner must not use the index of keys by their kind.
    WHERE kind <> 'idempotency' AND job_id = ANY (ARRAY(SELECT id FROM claimed WHERE key_until = 'start'))
)
SELECT * FROM claimed
