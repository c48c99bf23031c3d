    -- Events after the window of redrive_shards AS shard, which redrive_subscriptions AS own takes.
    FROM (
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
    ) AS event
    WHERE (own.types IS NULL OR event.type = ANY (own.types))
        AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
