    -- Unread events in the window of redrive_shards AS shard, which redrive_subscriptions AS own takes.
    FROM redrive_events AS event
    WHERE shard.until IS NOT NULL AND event.topic = shard.topic AND event.id > shard.at_id
        AND NOT pg_visible_in_snapshot(event.xid, shard.seen)
        AND pg_visible_in_snapshot(event.xid, shard.until)
        AND (own.types IS NULL OR event.type = ANY (own.types))
        AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
