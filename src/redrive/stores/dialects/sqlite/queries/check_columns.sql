-- Return the jobs with columns that contradict their state, which the CHECKs of the table refuse.
-- Called by check.
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' and its columns contradict that' AS text, 'columns' AS rule
FROM redrive_jobs AS job
WHERE job.id > :after_id
    AND job.id <= :until
    AND NOT (
        job.state IN ('ready', 'running', 'waiting', 'succeeded', 'dead', 'cancelled')
        AND (job.lease_id IS NOT NULL) = (job.state IN ('running', 'waiting'))
        AND (job.lease_id IS NULL) = (job.worker_id IS NULL)
        AND (job.success_lease_id IS NOT NULL) = (job.state = 'succeeded')
        AND (job.success_lease_id IS NULL) = (job.success_worker_id IS NULL)
        AND (job.claimed_at IS NOT NULL OR job.state IN ('ready', 'dead', 'cancelled'))
        AND (job.finished_at IS NOT NULL) = (job.state IN ('succeeded', 'dead', 'cancelled'))
        AND (job.slot IS NULL OR job.state = 'running')
        AND (
            job.hold IS NULL OR job.state = 'ready'
            OR (job.hold = 'bad_policy' AND job.state IN ('running', 'waiting'))
        )
        AND (job.state = 'dead' OR (job.caught_at IS NULL AND job.skipped_at IS NULL))
        AND (job.key IS NULL) = (job.key_until IS NULL)
        AND (job.started_at IS NULL OR job.expires_at IS NULL OR job.started_at < job.expires_at)
    )
LIMIT :count
