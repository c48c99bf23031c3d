    -- Unread events in the window of redrive_shards AS shard, which redrive_subscriptions AS own takes.
    FROM redrive_events AS event
    WHERE event.topic = shard.topic AND shard.until IS NOT NULL
        AND event.id > max(shard.at_id, CAST(shard.seen AS INTEGER)) AND event.id <= CAST(shard.until AS INTEGER)
        AND (own.types IS NULL OR event.type IN (SELECT value FROM json_each(own.types)))
        AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
