-- Return the open attempts of these jobs.
-- Called by end_overdue, which has locked them.
SELECT
    job.id, job.lease_id, job.task, job.queue, job.priority, job.worker_id, job.attempt, job.failures, job.crashes,
    job.snoozes, coalesce(job.by_rule, '[]') AS by_rule, job.last_delay, job.started_at, job.claimed_at, job.parent_id,
    job.partition, job.key, job.key_until, job.origin, job.scheduled_at, job.unreadable_at, job.salt,
    NULL AS payload,
    (SELECT document FROM redrive_policies WHERE digest = job.policy) AS policy
FROM redrive_jobs AS job
WHERE job.id IN (SELECT value FROM json_each(:ids)) AND job.lease_id IS NOT NULL
