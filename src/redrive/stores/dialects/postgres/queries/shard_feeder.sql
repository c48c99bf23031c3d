-- Give a shard another feeder, because the old one has ended.
-- Called by declare and resume.
UPDATE redrive_shards AS shard SET job_id = given.job_id
FROM unnest(:topic::text[], :subscription::text[], :shard::integer[], :job_id::bigint[])
    AS given (topic, subscription, shard, job_id)
WHERE shard.topic = given.topic AND shard.subscription = given.subscription AND shard.shard = given.shard
