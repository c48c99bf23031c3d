-- Give the worker these jobs, each under a new lease; an attempt of a limited queue occupies a slot.
-- Called by claim if jobs of limited queues are due; jobs that another claim has just taken are left out.
UPDATE redrive_jobs SET
    state = 'running',
    hold = NULL,
    slot = (
        SELECT known.name FROM redrive_queues AS known
        WHERE known.name = redrive_jobs.queue AND (known.concurrency IS NOT NULL OR known.per_partition IS NOT NULL)
    ),
    -- As in claim: a number of the block that was taken before, and 20 random bits.
    lease_id = (((SELECT value FROM redrive_sequences WHERE name = 'lease') - :count + 1 + chosen.key) << 20)
        | (:salt & 1048575),
    worker_id = :worker_id,
    attempt = attempt + 1,
    started_at = coalesce(started_at, :now),
    claimed_at = :now
FROM json_each(:ids) AS chosen
WHERE redrive_jobs.id = chosen.value AND redrive_jobs.state = 'ready'
    -- As in claim.
    AND (expires_at IS NULL OR expires_at > :now OR started_at IS NOT NULL)
    AND EXISTS (SELECT 1 FROM redrive_workers WHERE id = :worker_id AND stopped_at IS NULL)
RETURNING
-- include claimed.sql
