-- Count what a move of a subscription to an event would skip, repeat and cancel, each up to a limit, over its shards.
-- Called by preview. NULL stands for the end. A shard has not read what comes after its window (near) and within it (far).
SELECT
    coalesce(max(shard.epoch), 0) AS epoch,
    coalesce(sum((
        SELECT count(*) FROM (
            SELECT 1
-- include events_near.sql
                AND event.id < coalesce(:first_id, 9223372036854775807)
            LIMIT :count
        ) AS near
    ) + (
        SELECT count(*) FROM (
            SELECT 1
-- include events_far.sql
                AND event.id < coalesce(:first_id, 9223372036854775807)
            LIMIT :count
        ) AS far
    )), 0) AS skipped,
    coalesce(sum((
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_events AS event
            WHERE event.topic = shard.topic AND event.id >= :first_id
                AND event.id <= max(CAST(shard.seen AS INTEGER), iif(shard.until IS NULL, 0, shard.at_id))
                AND (own.types IS NULL OR event.type IN (SELECT value FROM json_each(own.types)))
                AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
            LIMIT :count
        ) AS done
    )), 0) AS repeated,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.queue = :topic || '.' || :name AND job.task = :topic || '.' || :name
                AND job.partition IS NOT NULL
                AND (job.state = 'ready' OR job.state = 'running' OR job.state = 'waiting')
            LIMIT :count
        ) AS open
    ) AS cancelled
FROM redrive_shards AS shard
JOIN redrive_subscriptions AS own ON own.topic = shard.topic AND own.name = shard.subscription
WHERE shard.topic = :topic AND shard.subscription = :name
