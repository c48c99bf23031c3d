-- Return the shards of subscriptions that have no feeder of their own, or a position although no window is open.
-- Called by check; it reads every shard.
SELECT shard.job_id AS id, 'shard ' || shard.shard || ' of ' || shard.topic || '.' || shard.subscription
    || CASE
        WHEN job.id IS NULL THEN ' has job ' || shard.job_id || ' as its feeder, which is not there'
        WHEN shard.until IS NULL AND shard.at_id <> 0 THEN ' is at event ' || shard.at_id || ' of no window'
        ELSE ' has job ' || shard.job_id || ' as its feeder, which is for ' || coalesce(job.origin, 'nothing')
    END AS text,
    'topics' AS rule
FROM redrive_shards AS shard
LEFT JOIN redrive_jobs AS job ON job.id = shard.job_id
WHERE job.id IS NULL
    OR job.origin IS NULL
    OR job.origin <> 'topic:' || shard.topic || '/' || shard.subscription || '@' || shard.shard
    OR (shard.until IS NULL AND shard.at_id <> 0)
LIMIT :count::bigint
