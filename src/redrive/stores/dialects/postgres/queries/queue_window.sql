-- Return the first due jobs of one limited queue, of each priority and task, without a partition and with one.
-- Called by claim under the lock of the queue; in an ordered queue each has the first job of its line, or 0.
WITH RECURSIVE loose AS (
    (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = :queue::text
        ORDER BY priority, task LIMIT 1
    )
    UNION ALL
    SELECT following.priority, following.task
    FROM loose
    CROSS JOIN LATERAL (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = :queue
            AND (priority, task) > (loose.priority, loose.task)
        ORDER BY priority, task LIMIT 1
    ) AS following
),
parted AS (
    (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue::text
        ORDER BY priority, task LIMIT 1
    )
    UNION ALL
    SELECT following.priority, following.task
    FROM parted
    CROSS JOIN LATERAL (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
            AND (priority, task) > (parted.priority, parted.task)
        ORDER BY priority, task LIMIT 1
    ) AS following
)
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL::bigint AS head_id
FROM loose
CROSS JOIN LATERAL (
    SELECT id, partition, priority, scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NULL AND queue = :queue AND priority = loose.priority
        AND task = loose.task AND scheduled_at <= :now::timestamptz
    ORDER BY scheduled_at, id
    LIMIT :count::bigint
) AS job
WHERE :tasks::text[] IS NULL OR loose.task = ANY (:tasks)
UNION ALL
-- A handler that has not stopped blocks its line: then no job is the first.
SELECT job.id, job.partition, job.priority, job.scheduled_at, CASE WHEN :ordered::boolean AND EXISTS (
    SELECT FROM redrive_unstopped AS other
    JOIN redrive_workers AS worker ON worker.id = other.worker_id AND worker.stopped_at IS NULL
    WHERE other.queue = :queue AND other.partition = job.partition
) THEN 0 WHEN :ordered THEN (
    SELECT line.id FROM redrive_jobs AS line
    WHERE line.queue = :queue AND line.partition = job.partition AND line.partition IS NOT NULL AND (
        line.state = 'ready' OR line.state = 'running' OR line.state = 'waiting'
        OR (line.state = 'dead' AND line.caught_at IS NULL AND line.skipped_at IS NULL)
    )
    ORDER BY line.id
    LIMIT 1
) END AS head_id
FROM parted
CROSS JOIN LATERAL (
    SELECT id, partition, priority, scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND priority = parted.priority
        AND task = parted.task AND scheduled_at <= :now
    ORDER BY scheduled_at, id
    LIMIT :window::bigint
) AS job
WHERE :tasks IS NULL OR parted.task = ANY (:tasks)
