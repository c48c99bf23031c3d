-- Return the shards of subscriptions, by topic, subscription and number; NULL stands for any.
-- Called by declare, lag and prune.
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen,
    shard.until, shard.final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why
FROM redrive_shards AS shard
WHERE (:topic IS NULL OR topic = :topic) AND (:subscription IS NULL OR subscription = :subscription)
ORDER BY topic, subscription, shard
