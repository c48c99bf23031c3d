-- Insert shards of a subscription, each with its feeder.
-- Called by declare and reshard.
INSERT INTO redrive_shards (topic, subscription, shard, job_id, seen, until, at_id)
VALUES (:topic, :subscription, :shard, :job_id, :seen, :until, :at_id)
