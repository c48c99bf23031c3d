-- The statements of operations/topics/feed.py.

-- name: feed_look
-- Return what each of these feeders has to do: whether its subscription is paused, and whether it has new events.
-- For all idle feeders of a worker at once; a few index probes for each.
-- postgres
SELECT
    shard.job_id, shard.epoch, subscription.paused_at IS NOT NULL AS paused,
    shard.final IS NOT NULL AS ending,
    shard.until IS NOT NULL
        -- Rows that this statement sees and that were not visible in the snapshot of the cursor. The order makes the planner
        -- read one entry of the index; it assumes that a third of the topic is new and that a scan finds a row soon.
        OR coalesce((
            SELECT xid FROM redrive_events WHERE topic = shard.topic ORDER BY xid DESC LIMIT 1
        ) >= pg_snapshot_xmax(shard.seen), FALSE)
        OR (
            SELECT xid FROM redrive_events
            WHERE topic = shard.topic AND xid = ANY (ARRAY(SELECT pg_snapshot_xip(shard.seen)))
            ORDER BY xid LIMIT 1
        ) IS NOT NULL AS news
FROM redrive_shards AS shard
JOIN redrive_subscriptions AS subscription
    ON subscription.topic = shard.topic AND subscription.name = shard.subscription
WHERE shard.job_id = ANY (:job_ids::bigint[])
-- sqlite
SELECT
    shard.job_id, shard.epoch, subscription.paused_at IS NOT NULL AS paused,
    shard.final IS NOT NULL AS ending,
    shard.until IS NOT NULL OR EXISTS (
        SELECT 1 FROM redrive_events WHERE topic = shard.topic AND id > CAST(shard.seen AS INTEGER)
    ) AS news
FROM redrive_shards AS shard
JOIN redrive_subscriptions AS subscription
    ON subscription.topic = shard.topic AND subscription.name = shard.subscription
WHERE shard.job_id IN (SELECT value FROM json_each(:job_ids))

-- name: feeders
-- Return the live workers that serve the feeders of a subscription, each with the number of these that it runs.
-- postgres
SELECT
    worker.id,
    (
        SELECT count(*) FROM redrive_jobs
        WHERE worker_id = worker.id AND state = 'running' AND task = :task::text
    ) AS shards
FROM redrive_workers AS worker
WHERE worker.stopped_at IS NULL AND worker.expires_at > coalesce(:now::timestamptz, (SELECT now FROM redrive_clock))
    AND (worker.tasks IS NULL OR :task = ANY (worker.tasks))
    AND (worker.queues IS NULL OR :queue::text = ANY (worker.queues))
    AND (worker.excluded IS NULL OR NOT (:queue = ANY (worker.excluded)))
ORDER BY worker.id
-- sqlite
SELECT
    worker.id,
    (
        SELECT count(*) FROM redrive_jobs
        WHERE worker_id = worker.id AND state = 'running' AND task = :task
    ) AS shards
FROM redrive_workers AS worker
WHERE worker.stopped_at IS NULL AND worker.expires_at > coalesce(:now, (SELECT now FROM redrive_clock))
    AND (worker.tasks IS NULL OR :task IN (SELECT value FROM json_each(worker.tasks)))
    AND (worker.queues IS NULL OR :queue IN (SELECT value FROM json_each(worker.queues)))
    AND (worker.excluded IS NULL OR NOT (:queue IN (SELECT value FROM json_each(worker.excluded))))
ORDER BY worker.id

-- name: feed_lock
-- Lock the shard of a feeder, and return it with the edge of the topic, if the lease of the feeder is current.
-- The row of the job is locked first, so that no sweep ends the lease before the commit.
-- postgres
WITH feeder AS MATERIALIZED (
    SELECT id FROM redrive_jobs
    -- As in settle_succeeded: the planner must not use the index of running jobs.
    WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint AND state <> 'waiting'
    FOR SHARE
)
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen::text AS seen,
    shard.until::text AS until, shard.final::text AS final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why,
    pg_current_snapshot()::text AS edge
FROM redrive_shards AS shard
JOIN feeder ON feeder.id = shard.job_id
FOR UPDATE OF shard
-- sqlite
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen,
    shard.until, shard.final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why,
    CAST((SELECT coalesce(max(id), 0) FROM redrive_events WHERE topic = shard.topic) AS TEXT) AS edge
FROM redrive_jobs AS feeder
JOIN redrive_shards AS shard ON shard.job_id = feeder.id
WHERE feeder.id = :job_id AND feeder.lease_id = :lease_id AND feeder.state = 'running'

-- name: lines_held
-- Return the lines of a queue that have a job which holds up the events behind it; of the given ones, or of all.
-- both
SELECT DISTINCT partition FROM redrive_jobs
WHERE queue = :queue::text AND partition IS NOT NULL AND (:lines::text[] IS NULL OR partition = ANY (:lines)) AND (
        state = 'ready' OR state = 'running' OR state = 'waiting'
        OR (state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL)
    )

-- name: done_of
-- Return the events of a subscription whose deliveries have ended under an epoch, although its shards may not have
-- them as done.
-- both
SELECT event_id FROM redrive_done
WHERE topic = :topic::text AND subscription = :subscription::text AND epoch = :epoch::bigint

-- name: done_drop
-- Delete the rows of ended deliveries that their shard has as done, and return their events.
-- both
DELETE FROM redrive_done
WHERE topic = :topic::text AND subscription = :subscription::text AND event_id = ANY (:ids::bigint[])
RETURNING event_id

-- name: feed_put
-- Write the cursor of a locked shard.
-- both
UPDATE redrive_shards SET
    turns = :turns::bigint, seen = :seen::text::pg_snapshot, until = :until::text::pg_snapshot, at_id = :at_id::bigint,
    done_id = :done_id::bigint, unfinished = :unfinished::bigint[], ahead_id = :ahead_id::bigint, stuck_id = :stuck_id::bigint, stuck_why = :stuck_why::text
WHERE topic = :topic::text AND subscription = :subscription::text AND shard = :shard::integer

-- name: feed_near
-- Return the next events of a window that is small, by id; those that the subscription does not take without
-- payload.
-- One row more than the limit of a small window shows that it is a large one.
-- postgres
SELECT
    id, key, type, version, at,
    CASE WHEN
        (:types::text[] IS NULL OR type = ANY (:types))
            AND (:shards::integer = 1 OR coalesce(slot, id) % :shards = :shard::integer)
    THEN payload END AS payload
FROM (
    -- The index on transaction ids finds the events of the window. The range begins behind the snapshot of the cursor;
    -- the few transactions that were open then are looked up one by one, so that a long one does not make every look
    -- read all events since its start. Adding zero to the id keeps the planner from walking the primary key.
    (
        SELECT id, key, slot, type, version, at, payload FROM redrive_events
        WHERE topic = :topic::text AND id + 0 > :after::bigint
            AND xid >= pg_snapshot_xmax(:seen::text::pg_snapshot) AND xid < pg_snapshot_xmax(:until::text::pg_snapshot)
            AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
        LIMIT :count::bigint
    )
    UNION ALL
    (
        SELECT id, key, slot, type, version, at, payload FROM redrive_events
        WHERE topic = :topic AND id + 0 > :after
            AND xid = ANY (ARRAY(SELECT pg_snapshot_xip(:seen::text::pg_snapshot)))
            AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
        LIMIT :count
    )
) AS found
ORDER BY id
LIMIT :count
-- sqlite
SELECT
    id, key, type, version, at,
    CASE WHEN
        (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
            AND (:shards = 1 OR coalesce(slot, id) % :shards = :shard)
    THEN payload END AS payload
FROM redrive_events
WHERE topic = :topic AND id > max(:after, CAST(:seen AS INTEGER)) AND id <= CAST(:until AS INTEGER)
ORDER BY id
LIMIT :count

-- name: feed_first
-- Return the lowest id of the events of a window; NULL if it has none.
-- postgres
SELECT min(id) FROM (
    SELECT min(id + 0) AS id FROM redrive_events
    WHERE topic = :topic::text AND xid >= pg_snapshot_xmax(:seen::text::pg_snapshot)
        AND xid < pg_snapshot_xmax(:until::text::pg_snapshot) AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
    UNION ALL
    SELECT min(id + 0) FROM redrive_events
    WHERE topic = :topic AND xid = ANY (ARRAY(SELECT pg_snapshot_xip(:seen::text::pg_snapshot)))
        AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
) AS found
-- sqlite
SELECT min(id) FROM redrive_events
WHERE topic = :topic AND id > CAST(:seen AS INTEGER) AND id <= CAST(:until AS INTEGER)

-- name: feed_far
-- Return the next events of a window that is large, by id; those that the subscription does not take without
-- payload.
-- It walks the primary key: sorting a large window for each page would read all of it each time.
-- postgres
SELECT
    id, key, type, version, at,
    CASE WHEN
        (:types::text[] IS NULL OR type = ANY (:types))
            AND (:shards::integer = 1 OR coalesce(slot, id) % :shards = :shard::integer)
    THEN payload END AS payload
FROM redrive_events
WHERE topic = :topic::text AND id > :after::bigint
    AND NOT pg_visible_in_snapshot(xid, :seen::text::pg_snapshot) AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
ORDER BY id
LIMIT :count::bigint
-- sqlite
SELECT
    id, key, type, version, at,
    CASE WHEN
        (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
            AND (:shards = 1 OR coalesce(slot, id) % :shards = :shard)
    THEN payload END AS payload
FROM redrive_events
WHERE topic = :topic AND id > max(:after, CAST(:seen AS INTEGER)) AND id <= CAST(:until AS INTEGER)
ORDER BY id
LIMIT :count

-- name: feed_healthy
-- Reset the crashes of a feeder that has made progress.
-- Once for each lease of a feeder that was lost before.
-- both
UPDATE redrive_jobs SET crashes = 0 WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint

-- name: done_put
-- Write that deliveries of events have ended, if the lease of their feeder is current, and return those that had
-- not.
-- It locks the job, so that no sweep ends the lease.
-- postgres
WITH feeder AS MATERIALIZED (
    SELECT id FROM redrive_jobs
    -- As in settle_succeeded: the planner must not use the index of running jobs.
    WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint AND state <> 'waiting'
    FOR SHARE
)
INSERT INTO redrive_done AS done (topic, subscription, event_id, epoch)
SELECT :topic::text, :subscription::text, given.id, :epoch::bigint
FROM unnest(:ids::bigint[]) AS given (id) CROSS JOIN feeder
ON CONFLICT (topic, subscription, event_id) DO UPDATE SET epoch = excluded.epoch WHERE done.epoch <> excluded.epoch
RETURNING event_id
-- sqlite
INSERT INTO redrive_done (topic, subscription, event_id, epoch)
SELECT :topic, :subscription, given.value, :epoch FROM json_each(:ids) AS given
WHERE EXISTS (SELECT 1 FROM redrive_jobs WHERE id = :job_id AND lease_id = :lease_id AND state = 'running')
ON CONFLICT (topic, subscription, event_id) DO UPDATE SET epoch = excluded.epoch
    WHERE redrive_done.epoch <> excluded.epoch
RETURNING event_id
