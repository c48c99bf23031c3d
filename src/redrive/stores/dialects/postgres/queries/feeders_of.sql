-- Return the jobs of the feeders of subscriptions; NULL stands for any topic or name.
-- Called by status.
SELECT
    job.id, job.task, job.queue, job.priority, job.state, job.hold, job.note, job.enqueued_at, job.scheduled_at,
    job.started_at, job.claimed_at, job.finished_at, job.caught_at, job.skipped_at, job.attempt, job.failures, job.crashes,
    job.snoozes, job.redrives, job.lease_id, job.worker_id, job.parent_id, job.partition, job.key, job.key_until, job.origin,
    job.reason, job.error, job.expires_at, job.fingerprint,
    (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
FROM redrive_shards AS shard
JOIN redrive_jobs AS job ON job.id = shard.job_id
WHERE (:topic::text IS NULL OR shard.topic = :topic) AND (:name::text IS NULL OR shard.subscription = :name)
ORDER BY shard.topic, shard.subscription, shard.shard
