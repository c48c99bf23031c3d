-- Give the worker these jobs, each under a new lease; an attempt of a limited queue occupies a slot.
-- Called by claim if jobs of limited queues are due; jobs that another claim has just taken are left out.
WITH taken AS MATERIALIZED (
    SELECT array_agg(locked.id) AS ids
    FROM (
        SELECT id FROM redrive_jobs
        WHERE id = ANY (:ids::bigint[]) AND state = 'ready'
            AND EXISTS (SELECT FROM redrive_workers WHERE id = :worker_id::bigint AND stopped_at IS NULL)
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
    -- As in claim.
    lease_id = (nextval('redrive_lease_ids') << 20) | (:salt::bigint & 1048575),
    worker_id = :worker_id,
    attempt = job.attempt + 1,
    started_at = coalesce(job.started_at, :now::timestamptz),
    claimed_at = :now
FROM taken
WHERE job.id = ANY (taken.ids)
    -- As in claim.
    AND (job.expires_at IS NULL OR job.expires_at > :now OR job.started_at IS NOT NULL)
RETURNING
-- include claimed.sql
