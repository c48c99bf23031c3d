-- Lock the shards of a subscription, and return them.
-- Called by move and reshard.
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen::text AS seen,
    shard.until::text AS until, shard.final::text AS final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why
FROM redrive_shards AS shard
WHERE topic = :topic::text AND subscription = :subscription::text
ORDER BY shard
FOR UPDATE
