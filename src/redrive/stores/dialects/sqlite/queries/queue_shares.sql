-- Return the shares (partition, priority, task) of one queue after a partition, each with its due time.
-- Called by claim under the lock of the queue if more is due than it reads first; a loose scan with as many probes.
WITH RECURSIVE share (id, partition, priority, task) AS (
    SELECT first.id, first.partition, first.priority, first.task
    FROM (
        SELECT id, partition, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > :after
        ORDER BY partition, priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.partition, job.priority, job.task
    FROM share
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
                AND partition = share.partition AND priority = share.priority AND task > share.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
                AND partition = share.partition AND priority > share.priority
            ORDER BY priority, task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > share.partition
            ORDER BY partition, priority, task LIMIT 1
        )
    )
    LIMIT :count
)
SELECT share.partition, share.priority, share.task, (
    SELECT scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
        AND partition = share.partition AND priority = share.priority AND task = share.task
    ORDER BY scheduled_at
    LIMIT 1
) AS due_at
FROM share
