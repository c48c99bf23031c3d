-- Return the lines of an ordered queue that wait, after a partition, each with its first job in whatever state.
-- Called by claim under the lock of the queue if more is due than it reads first; a loose scan with as many probes.
WITH RECURSIVE line AS (
    (
        SELECT partition FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue::text AND partition > :after::text
        ORDER BY partition LIMIT 1
    )
    UNION ALL
    SELECT following.partition
    FROM line
    CROSS JOIN LATERAL (
        SELECT partition FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > line.partition
        ORDER BY partition LIMIT 1
    ) AS following
)
SELECT head.id, head.partition, head.priority, head.task, head.scheduled_at,
    -- A handler that has not stopped blocks its line as if its attempt had not ended.
    CASE WHEN EXISTS (
        SELECT FROM redrive_unstopped AS other
        JOIN redrive_workers AS worker ON worker.id = other.worker_id AND worker.stopped_at IS NULL
        WHERE other.queue = :queue AND other.partition = head.partition
    ) THEN 'running' ELSE head.state END AS state
FROM (SELECT partition FROM line LIMIT :count::bigint) AS waiting
CROSS JOIN LATERAL (
    SELECT first.id, first.partition, first.priority, first.task, first.scheduled_at, first.state
    FROM redrive_jobs AS first
    WHERE first.queue = :queue AND first.partition = waiting.partition AND first.partition IS NOT NULL AND (
        first.state = 'ready' OR first.state = 'running' OR first.state = 'waiting'
        OR (first.state = 'dead' AND first.caught_at IS NULL AND first.skipped_at IS NULL)
    )
    ORDER BY first.id
    LIMIT 1
) AS head
