-- Give a shard another feeder, because the old one has ended.
-- Called by declare and resume.
UPDATE redrive_shards SET job_id = :job_id
WHERE topic = :topic AND subscription = :subscription AND shard = :shard
