-- Return the shares (partition, priority, task) of one queue after a partition, each with its due time.
-- Called by claim under the lock of the queue if more is due than it reads first; a loose scan with as many probes.
WITH RECURSIVE share AS (
    (
        SELECT partition, priority, task, scheduled_at FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue::text AND partition > :after::text
        ORDER BY partition, priority, task, scheduled_at LIMIT 1
    )
    UNION ALL
    SELECT following.partition, following.priority, following.task, following.scheduled_at
    FROM share
    CROSS JOIN LATERAL (
        SELECT partition, priority, task, scheduled_at FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
            AND (partition, priority, task) > (share.partition, share.priority, share.task)
        ORDER BY partition, priority, task, scheduled_at LIMIT 1
    ) AS following
)
SELECT partition, priority, task, scheduled_at AS due_at FROM share
LIMIT :count::bigint
