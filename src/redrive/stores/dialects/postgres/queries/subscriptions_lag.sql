-- Return how many events each subscription has not finished, and its failed and dead deliveries, each up to a limit.
-- Called by status. NULL stands for any topic or name; the two parts of a shard are those of move_effect.
SELECT
    sub.topic, sub.name, lag.events::bigint AS events, lag.oldest_at AS near_at, lag.oldest_at AS far_at,
    failed.number AS failed, dead.number AS dead
FROM redrive_subscriptions AS sub
CROSS JOIN LATERAL (
    SELECT coalesce(sum(part.events), 0) AS events, min(part.oldest_at) AS oldest_at
    FROM redrive_shards AS shard
    CROSS JOIN LATERAL (
        (
            SELECT count(*) AS events, min(near.at) AS oldest_at FROM (
                SELECT found.at FROM (
                    (
                        SELECT id, at, type, slot FROM redrive_events AS event
                        WHERE event.topic = shard.topic
                            AND event.xid >= pg_snapshot_xmax(coalesce(shard.until, shard.seen))
                    )
                    UNION ALL
                    (
                        SELECT id, at, type, slot FROM redrive_events AS event
                        WHERE event.topic = shard.topic
                            AND event.xid = ANY (ARRAY(SELECT pg_snapshot_xip(coalesce(shard.until, shard.seen))))
                    )
                ) AS found
                WHERE (sub.types IS NULL OR found.type = ANY (sub.types))
                    AND (sub.shards = 1 OR coalesce(found.slot, found.id) % sub.shards = shard.shard)
                LIMIT :count::bigint
            ) AS near
        )
        UNION ALL
        (
            SELECT count(*) AS events, min(far.at) AS oldest_at FROM (
                SELECT event.at FROM redrive_events AS event
                WHERE shard.until IS NOT NULL AND event.topic = shard.topic AND event.id > shard.at_id
                    AND NOT pg_visible_in_snapshot(event.xid, shard.seen)
                    AND pg_visible_in_snapshot(event.xid, shard.until)
                    AND (sub.types IS NULL OR event.type = ANY (sub.types))
                    AND (sub.shards = 1 OR coalesce(event.slot, event.id) % sub.shards = shard.shard)
                ORDER BY event.id
                LIMIT :count
            ) AS far
        )
    ) AS part
    WHERE shard.topic = sub.topic AND shard.subscription = sub.name
) AS lag
CROSS JOIN LATERAL (
    SELECT count(*) AS number FROM (
        SELECT FROM redrive_jobs AS job
        WHERE job.queue = sub.topic || '.' || sub.name AND job.task = sub.topic || '.' || sub.name
            AND job.partition IS NOT NULL
            AND (job.state = 'ready' OR job.state = 'running' OR job.state = 'waiting')
        LIMIT :count
    ) AS open
) AS failed
CROSS JOIN LATERAL (
    SELECT count(*) AS number FROM (
        SELECT FROM redrive_jobs AS job
        WHERE job.state = 'dead' AND job.caught_at IS NULL AND job.task = sub.topic || '.' || sub.name
            AND job.partition IS NOT NULL
        LIMIT :count
    ) AS ended
) AS dead
WHERE (:topic::text IS NULL OR sub.topic = :topic) AND (:name::text IS NULL OR sub.name = :name)
