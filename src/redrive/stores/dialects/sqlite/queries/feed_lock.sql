-- Lock the shard of a feeder, and return it with the edge of the topic, if the lease of the feeder is current.
-- Called by attach and turn. The row of the job is locked first, so that no sweep ends the lease before the commit.
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen,
    shard.until, shard.final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why,
    CAST((SELECT coalesce(max(id), 0) FROM redrive_events WHERE topic = shard.topic) AS TEXT) AS edge
FROM redrive_jobs AS feeder
JOIN redrive_shards AS shard ON shard.job_id = feeder.id
WHERE feeder.id = :job_id AND feeder.lease_id = :lease_id AND feeder.state = 'running'
