-- Return how many events each subscription has not finished, and its failed and dead deliveries, each up to a limit.
-- Called by status. NULL stands for any topic or name; the two parts of a shard are those of move_effect.
SELECT
    own.topic, own.name, lag.events::bigint AS events, lag.oldest_at AS near_at, lag.oldest_at AS far_at,
    failed.number AS failed, dead.number AS dead
FROM redrive_subscriptions AS own
CROSS JOIN LATERAL (
    SELECT coalesce(sum(part.events), 0) AS events, min(part.oldest_at) AS oldest_at
    FROM redrive_shards AS shard
    CROSS JOIN LATERAL (
        (
            SELECT count(*) AS events, min(near.at) AS oldest_at FROM (
                SELECT event.at
-- include events_near.sql
                LIMIT :count::bigint
            ) AS near
        )
        UNION ALL
        (
            SELECT count(*) AS events, min(far.at) AS oldest_at FROM (
                SELECT event.at
-- include events_far.sql
                ORDER BY event.id
                LIMIT :count
            ) AS far
        )
    ) AS part
    WHERE shard.topic = own.topic AND shard.subscription = own.name
) AS lag
CROSS JOIN LATERAL (
    SELECT count(*) AS number FROM (
        SELECT FROM redrive_jobs AS job
        WHERE job.queue = own.topic || '.' || own.name AND job.task = own.topic || '.' || own.name
            AND job.partition IS NOT NULL
            AND (job.state = 'ready' OR job.state = 'running' OR job.state = 'waiting')
        LIMIT :count
    ) AS open
) AS failed
CROSS JOIN LATERAL (
    SELECT count(*) AS number FROM (
        SELECT FROM redrive_jobs AS job
        WHERE job.state = 'dead' AND job.caught_at IS NULL AND job.task = own.topic || '.' || own.name
            AND job.partition IS NOT NULL
        LIMIT :count
    ) AS ended
) AS dead
WHERE (:topic::text IS NULL OR own.topic = :topic) AND (:name::text IS NULL OR own.name = :name)
