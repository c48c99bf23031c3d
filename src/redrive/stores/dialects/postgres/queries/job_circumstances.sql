-- Return the present instant, and for each of these jobs what keeps it from running or has ended it.
-- Called first by status and circumstances.
SELECT given.id, clock.now, head.id AS head_id, head.state AS head_state, attempt.error_type,
    child.id AS catch_id, child.task AS catch_task, child.state AS catch_state,
    -- A worker starts the jobs of a claim by priority, due time and id. A feeder takes no slot.
    coalesce(worker.concurrency <= (
        SELECT count(*) FROM redrive_jobs AS other
        WHERE other.worker_id = worker.id AND other.state = 'running'
            AND (other.origin IS NULL OR other.origin NOT LIKE 'topic:%@%' OR other.origin LIKE '%#%')
            AND (other.claimed_at, other.priority, other.scheduled_at, other.id)
                < (job.claimed_at, job.priority, job.scheduled_at, job.id)
    ), false) AS is_ahead
FROM unnest(:ids::bigint[]) AS given (id)
CROSS JOIN (SELECT coalesce(:now::timestamptz, now) AS now FROM redrive_clock) AS clock
LEFT JOIN redrive_jobs AS job ON job.id = given.id
LEFT JOIN redrive_queues AS queue
    ON job.state = 'ready' AND job.partition IS NOT NULL AND queue.name = job.queue AND queue.ordered
LEFT JOIN redrive_jobs AS head ON head.id = (
    SELECT first.id FROM redrive_jobs AS first
    WHERE first.queue = queue.name AND first.partition = job.partition AND first.partition IS NOT NULL AND (
        first.state = 'ready' OR first.state = 'running' OR first.state = 'waiting'
        OR (first.state = 'dead' AND first.caught_at IS NULL AND first.skipped_at IS NULL)
    )
    ORDER BY first.id
    LIMIT 1
)
LEFT JOIN redrive_attempts AS attempt
    ON job.state = 'dead' AND attempt.job_id = job.id
    AND attempt.lease_id = (SELECT max(lease_id) FROM redrive_attempts WHERE job_id = job.id)
LEFT JOIN redrive_jobs AS child
    ON job.state = 'dead' AND child.id = (SELECT max(id) FROM redrive_jobs WHERE parent_id = job.id)
LEFT JOIN redrive_workers AS worker ON job.state = 'running' AND worker.id = job.worker_id
