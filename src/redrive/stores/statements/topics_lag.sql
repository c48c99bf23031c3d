-- The statements of operations/topics/lag.py.

-- name: feeders_of
-- Return the jobs of the feeders of subscriptions; NULL stands for any topic or name.
-- postgres
SELECT
    job.id, job.task, job.queue, job.priority, job.state, job.hold, job.note, job.enqueued_at, job.scheduled_at,
    job.started_at, job.claimed_at, job.finished_at, job.caught_at, job.skipped_at, job.attempt, job.failures, job.crashes,
    job.snoozes, job.redrives, job.lease_id, job.worker_id, job.parent_id, job.partition, job.key, job.key_until, job.origin,
    job.reason, job.error, job.expires_at, job.fingerprint,
    (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
FROM redrive_shards AS shard
JOIN redrive_jobs AS job ON job.id = shard.job_id
WHERE (:topic::text IS NULL OR shard.topic = :topic) AND (:name::text IS NULL OR shard.subscription = :name)
ORDER BY shard.topic, shard.subscription, shard.shard
-- sqlite
SELECT
    job.id, job.task, job.queue, job.priority, job.state, job.hold, job.note, job.enqueued_at, job.scheduled_at,
    job.started_at, job.claimed_at, job.finished_at, job.caught_at, job.skipped_at, job.attempt, job.failures, job.crashes,
    job.snoozes, job.redrives, job.lease_id, job.worker_id, job.parent_id, job.partition, job.key, job.key_until, job.origin,
    job.reason, job.error, job.expires_at, job.fingerprint,
    (SELECT document FROM redrive_policies WHERE digest = job.policy) AS policy
FROM redrive_shards AS shard
JOIN redrive_jobs AS job ON job.id = shard.job_id
WHERE (:topic IS NULL OR shard.topic = :topic) AND (:name IS NULL OR shard.subscription = :name)
ORDER BY shard.topic, shard.subscription, shard.shard

-- name: subscriptions_lag
-- Return how many events each subscription has not finished, and its failed and dead deliveries, each up to a limit.
-- NULL stands for any topic or name; the two parts of a shard are those of move_effect.
-- postgres
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
-- include events_near
                LIMIT :count::bigint
            ) AS near
        )
        UNION ALL
        (
            SELECT count(*) AS events, min(far.at) AS oldest_at FROM (
                SELECT event.at
-- include events_far
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
        WHERE job.state = 'dead' AND job.caught_at IS NULL AND (job.skipped_at > job.finished_at) IS NOT TRUE
            AND job.task = own.topic || '.' || own.name
            AND job.partition IS NOT NULL
        LIMIT :count
    ) AS ended
) AS dead
WHERE (:topic::text IS NULL OR own.topic = :topic) AND (:name::text IS NULL OR own.name = :name)
-- sqlite
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
            WHERE job.state = 'dead' AND job.caught_at IS NULL AND (job.skipped_at > job.finished_at) IS NOT TRUE
                AND job.task = sub.topic || '.' || sub.name
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
-- include events_near
                LIMIT :count
            ) AS near
        ) AS near,
        (
            SELECT min(near.at) FROM (
                SELECT event.at
-- include events_near
                LIMIT :count
            ) AS near
        ) AS near_at,
        (
            SELECT count(*) FROM (
                SELECT event.at
-- include events_far
                LIMIT :count
            ) AS far
        ) AS far,
        (
            SELECT min(far.at) FROM (
                SELECT event.at
-- include events_far
                LIMIT :count
            ) AS far
        ) AS far_at
    FROM redrive_shards AS shard
    JOIN redrive_subscriptions AS own ON own.topic = shard.topic AND own.name = shard.subscription
) AS part ON part.topic = sub.topic AND part.subscription = sub.name
WHERE (:topic IS NULL OR sub.topic = :topic) AND (:name IS NULL OR sub.name = :name)
GROUP BY sub.topic, sub.name

-- name: deliveries_first
-- Return the first deliveries of each subscription that have not ended, or are dead and hold up their line.
-- NULL stands for any topic or name. The first of a line is the one that holds it.
-- postgres
SELECT
    job.id, job.origin, job.partition, job.state, job.hold, job.attempt, job.scheduled_at, job.error, job.note,
    EXISTS (SELECT 1 FROM redrive_tags WHERE tag = 'out of order' AND job_id = job.id) AS out_of_order
FROM redrive_subscriptions AS sub
CROSS JOIN LATERAL (
        SELECT mine.* FROM redrive_jobs AS mine
        WHERE mine.queue = sub.topic || '.' || sub.name AND mine.task = sub.topic || '.' || sub.name
            AND mine.partition IS NOT NULL AND (
                mine.state = 'ready' OR mine.state = 'running' OR mine.state = 'waiting'
                OR (mine.state = 'dead' AND mine.caught_at IS NULL AND mine.skipped_at IS NULL)
            )
        ORDER BY mine.id
        LIMIT :count::bigint
) AS job
WHERE (:topic::text IS NULL OR sub.topic = :topic) AND (:name::text IS NULL OR sub.name = :name)
ORDER BY job.id
-- sqlite
SELECT
    job.id, job.origin, job.partition, job.state, job.hold, job.attempt, job.scheduled_at, job.error, job.note,
    EXISTS (SELECT 1 FROM redrive_tags WHERE tag = 'out of order' AND job_id = job.id) AS out_of_order
FROM redrive_subscriptions AS sub
CROSS JOIN redrive_jobs AS job
WHERE (:topic IS NULL OR sub.topic = :topic) AND (:name IS NULL OR sub.name = :name)
    AND job.id IN (
        SELECT mine.id FROM redrive_jobs AS mine
        WHERE mine.queue = sub.topic || '.' || sub.name AND mine.task = sub.topic || '.' || sub.name
            AND mine.partition IS NOT NULL AND (
                mine.state = 'ready' OR mine.state = 'running' OR mine.state = 'waiting'
                OR (mine.state = 'dead' AND mine.caught_at IS NULL AND mine.skipped_at IS NULL)
            )
        ORDER BY mine.id
        LIMIT :count
    )
ORDER BY job.id

-- name: deliveries_dead
-- Return the dead deliveries of a subscription that were neither caught nor skipped, the latest first.
-- both
SELECT
    id, origin, partition, state, hold, attempt, scheduled_at, error, note,
    EXISTS (SELECT 1 FROM redrive_tags WHERE tag = 'out of order' AND job_id = job.id) AS out_of_order
FROM redrive_jobs AS job
WHERE state = 'dead' AND caught_at IS NULL AND (skipped_at > finished_at) IS NOT TRUE AND task = :task::text
    AND partition IS NOT NULL
ORDER BY id DESC
LIMIT :count::bigint
