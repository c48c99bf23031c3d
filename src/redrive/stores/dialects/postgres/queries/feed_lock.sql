-- Lock the shard of a feeder, and return it with the edge of the topic, if the lease of the feeder is current.
-- Called by attach and turn. The row of the job is locked first, so that no sweep ends the lease before the commit.
WITH feeder AS MATERIALIZED (
    SELECT id FROM redrive_jobs
    -- As in settle_succeeded: the planner must not use the index of running jobs.
    WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint AND state <> 'waiting'
    FOR SHARE
)
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen::text AS seen,
    shard.until::text AS until, shard.final::text AS final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why,
    pg_current_snapshot()::text AS edge
FROM redrive_shards AS shard
JOIN feeder ON feeder.id = shard.job_id
FOR UPDATE OF shard
