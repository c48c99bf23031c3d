-- Count what a move of a subscription to an event would skip, repeat and cancel, each up to a limit, over its shards.
-- Called by preview. NULL stands for the end. A shard has not read what comes after its window (near) and within it (far).
SELECT
    coalesce(max(shard.epoch), 0) AS epoch,
    coalesce(sum(near.events + far.events), 0)::bigint AS skipped,
    coalesce(sum(done.events), 0)::bigint AS repeated,
    (
        SELECT count(*) FROM (
            SELECT FROM redrive_jobs AS job
            WHERE job.queue = :topic::text || '.' || :name::text AND job.task = :topic || '.' || :name
                AND job.partition IS NOT NULL
                AND (job.state = 'ready' OR job.state = 'running' OR job.state = 'waiting')
            LIMIT :count::bigint
        ) AS open
    ) AS cancelled
FROM redrive_shards AS shard
JOIN redrive_subscriptions AS own ON own.topic = shard.topic AND own.name = shard.subscription
CROSS JOIN LATERAL (
    SELECT count(*) AS events FROM (
        SELECT
-- include events_near.sql
            AND event.id < coalesce(:first_id::bigint, 9223372036854775807)
        LIMIT :count
    ) AS ahead
) AS near
CROSS JOIN LATERAL (
    SELECT count(*) AS events FROM (
        SELECT
-- include events_far.sql
            AND event.id < coalesce(:first_id, 9223372036854775807)
        ORDER BY event.id
        LIMIT :count
    ) AS ahead
) AS far
-- Done events come before the others, except near the cursor, so it reads a bounded number of events.
CROSS JOIN LATERAL (
    SELECT count(*) AS events FROM (
        SELECT event.id, event.xid FROM redrive_events AS event
        WHERE event.topic = shard.topic AND event.id >= :first_id
            AND (own.types IS NULL OR event.type = ANY (own.types))
            AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
        ORDER BY event.id
        LIMIT 2 * :count
    ) AS read
    WHERE pg_visible_in_snapshot(read.xid, shard.seen)
        OR (shard.until IS NOT NULL AND read.id <= shard.at_id AND pg_visible_in_snapshot(read.xid, shard.until))
) AS done
WHERE shard.topic = :topic AND shard.subscription = :name
