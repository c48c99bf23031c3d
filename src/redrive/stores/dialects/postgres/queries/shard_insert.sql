-- Insert shards of a subscription, each with its feeder.
-- Called by declare and reshard.
INSERT INTO redrive_shards (topic, subscription, shard, job_id, seen, until, at_id)
SELECT topic, subscription, shard, job_id, seen::pg_snapshot, until::pg_snapshot, at_id
FROM unnest(
    :topic::text[], :subscription::text[], :shard::integer[], :job_id::bigint[], :seen::text[], :until::text[],
    :at_id::bigint[]
) AS given (topic, subscription, shard, job_id, seen, until, at_id)
