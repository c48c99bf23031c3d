-- Return how many events each subscription has not finished, and its failed and dead deliveries, each up to a limit.
-- Called by status. NULL stands for any topic or name; the two parts of a shard are those of move_effect.
SELECT
    sub.topic, sub.name, sum(coalesce(part.near, 0) + coalesce(part.far, 0)) AS events,
    min(coalesce(part.near_at, part.far_at)) AS near_at, min(coalesce(part.far_at, part.near_at)) AS far_at,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.queue = sub.topic || '.' || sub.name AND job.task = sub.topic || '.' || sub.name
                AND job.partition IS NOT NULL
                AND (job.state = 'ready' OR job.state = 'running' OR job.state = 'waiting')
            LIMIT :count
        ) AS open
    ) AS failed,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.state = 'dead' AND job.caught_at IS NULL AND job.task = sub.topic || '.' || sub.name
                AND job.partition IS NOT NULL
            LIMIT :count
        ) AS ended
    ) AS dead
FROM redrive_subscriptions AS sub
LEFT JOIN (
    SELECT
        shard.topic, shard.subscription,
        (
            SELECT count(*) FROM (
                SELECT event.at
-- include events_near.sql
                LIMIT :count
            ) AS near
        ) AS near,
        (
            SELECT min(near.at) FROM (
                SELECT event.at
-- include events_near.sql
                LIMIT :count
            ) AS near
        ) AS near_at,
        (
            SELECT count(*) FROM (
                SELECT event.at
-- include events_far.sql
                LIMIT :count
            ) AS far
        ) AS far,
        (
            SELECT min(far.at) FROM (
                SELECT event.at
-- include events_far.sql
                LIMIT :count
            ) AS far
        ) AS far_at
    FROM redrive_shards AS shard
    JOIN redrive_subscriptions AS own ON own.topic = shard.topic AND own.name = shard.subscription
) AS part ON part.topic = sub.topic AND part.subscription = sub.name
WHERE (:topic IS NULL OR sub.topic = :topic) AND (:name IS NULL OR sub.name = :name)
GROUP BY sub.topic, sub.name
