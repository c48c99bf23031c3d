    -- A claim, of redrive_jobs AS job.
    job.id, job.lease_id, job.task, job.queue, job.priority, job.worker_id, job.attempt, job.failures, job.crashes,
    job.snoozes, coalesce(job.by_rule, '{}') AS by_rule, job.last_delay, job.started_at, job.claimed_at, job.parent_id,
    job.partition, job.key, job.key_until, job.origin, job.scheduled_at, job.unreadable_at, job.salt,
    (SELECT payload FROM redrive_payloads WHERE job_id = job.id) AS payload,
    (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
