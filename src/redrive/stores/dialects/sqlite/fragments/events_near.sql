    -- Events after the window of redrive_shards AS shard, which redrive_subscriptions AS own takes.
    FROM redrive_events AS event
    WHERE event.topic = shard.topic AND event.id > CAST(coalesce(shard.until, shard.seen) AS INTEGER)
        AND (own.types IS NULL OR event.type IN (SELECT value FROM json_each(own.types)))
        AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
