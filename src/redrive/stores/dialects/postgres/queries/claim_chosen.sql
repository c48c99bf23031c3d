-- Gives the worker these jobs, each under a new lease, in this order; an attempt of a limited queue takes up a place.
-- Called by claim where jobs of special queues are due; those that others have just taken are left out.
WITH taken AS MATERIALIZED (
    SELECT array_agg(locked.id ORDER BY array_position(:ids::bigint[], locked.id)) AS ids
    FROM (
        SELECT id FROM redrive_jobs WHERE id = ANY (:ids) AND state = 'ready'
        FOR UPDATE SKIP LOCKED
    ) AS locked
)
UPDATE redrive_jobs AS job SET
    state = 'running',
    hold = NULL,
    slot = (
        SELECT known.name FROM redrive_queues AS known
        WHERE known.name = job.queue AND (known.concurrency IS NOT NULL OR known.per_partition IS NOT NULL)
    ),
    lease_id = (:leases::bigint[])[array_position(taken.ids, job.id)],
    worker_id = :worker_id::bigint,
    attempt = job.attempt + 1,
    started_at = coalesce(job.started_at, :now::timestamptz),
    claimed_at = :now
FROM taken
WHERE job.id = ANY (taken.ids)
RETURNING
    job.id, job.lease_id, job.task, job.queue, job.priority, job.worker_id, job.attempt, job.failures, job.crashes,
    job.snoozes, coalesce(job.by_rule, '{}') AS by_rule, job.last_delay, job.started_at, job.claimed_at, job.parent_id,
    job.partition, job.key, job.key_until, job.scheduled_at,
    (SELECT payload FROM redrive_payloads WHERE job_id = job.id) AS payload,
    (SELECT document FROM redrive_policies WHERE digest = job.policy) AS policy
