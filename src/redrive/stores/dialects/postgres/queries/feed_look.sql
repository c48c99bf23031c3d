-- Return what each of these feeders has to do: whether its subscription is paused, and whether it has new events.
-- Called by look, for all idle feeders of a worker at once; a few index probes for each.
SELECT
    shard.job_id, shard.epoch, subscription.paused_at IS NOT NULL AS paused,
    shard.final IS NOT NULL AS ending,
    shard.until IS NOT NULL
        -- Rows that this statement sees and that were not visible in the snapshot of the cursor. The order makes the planner
        -- read one entry of the index; it assumes that a third of the topic is new and that a scan finds a row soon.
        OR coalesce((
            SELECT xid FROM redrive_events WHERE topic = shard.topic ORDER BY xid DESC LIMIT 1
        ) >= pg_snapshot_xmax(shard.seen), FALSE)
        OR (
            SELECT xid FROM redrive_events
            WHERE topic = shard.topic AND xid = ANY (ARRAY(SELECT pg_snapshot_xip(shard.seen)))
            ORDER BY xid LIMIT 1
        ) IS NOT NULL AS news
FROM redrive_shards AS shard
JOIN redrive_subscriptions AS subscription
    ON subscription.topic = shard.topic AND subscription.name = shard.subscription
WHERE shard.job_id = ANY (:job_ids::bigint[])
