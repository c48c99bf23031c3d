-- Return the first due jobs of one limited queue, of each priority and task, without a partition and with one.
-- Called by claim under the lock of the queue; in an ordered queue each has the first job of its line, or 0.
WITH RECURSIVE loose (id, priority, task) AS (
    SELECT first.id, first.priority, first.task
    FROM (
        SELECT id, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = :queue
        ORDER BY priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.priority, job.task
    FROM loose
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = :queue
                AND priority = loose.priority AND task > loose.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = :queue AND priority > loose.priority
            ORDER BY priority, task LIMIT 1
        )
    )
),
parted (id, priority, task) AS (
    SELECT first.id, first.priority, first.task
    FROM (
        SELECT id, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
        ORDER BY priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.priority, job.task
    FROM parted
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
                AND priority = parted.priority AND task > parted.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND priority > parted.priority
            ORDER BY priority, task LIMIT 1
        )
    )
)
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL AS head_id
FROM loose,
    json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = :queue AND priority = loose.priority
                AND task = loose.task AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :count
        ) AS first
    )) AS candidate
JOIN redrive_jobs AS job ON job.id = candidate.value
WHERE :tasks IS NULL OR loose.task IN (SELECT value FROM json_each(:tasks))
UNION ALL
-- A handler that has not stopped blocks its line: then no job is the first.
SELECT job.id, job.partition, job.priority, job.scheduled_at, CASE WHEN :ordered AND EXISTS (
    SELECT 1 FROM redrive_unstopped AS other
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
FROM parted,
    json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND priority = parted.priority
                AND task = parted.task AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :window
        ) AS first
    )) AS candidate
JOIN redrive_jobs AS job ON job.id = candidate.value
WHERE :tasks IS NULL OR parted.task IN (SELECT value FROM json_each(:tasks))
