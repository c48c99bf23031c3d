-- Return the lines of an ordered queue that wait, after a partition, each with its first job in whatever state.
-- Called by claim under the lock of the queue if more is due than it reads first; a loose scan with as many probes.
WITH RECURSIVE line (partition) AS (
    SELECT (
        SELECT partition FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > :after
        ORDER BY partition LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT partition FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > line.partition
        ORDER BY partition LIMIT 1
    )
    FROM line
    WHERE line.partition IS NOT NULL
    LIMIT :count
)
SELECT head.id, head.partition, head.priority, head.task, head.scheduled_at,
    -- A handler that has not stopped blocks its line as if its attempt had not ended.
    CASE WHEN EXISTS (
        SELECT 1 FROM redrive_unstopped AS other
        JOIN redrive_workers AS worker ON worker.id = other.worker_id AND worker.stopped_at IS NULL
        WHERE other.queue = :queue AND other.partition = head.partition
    ) THEN 'running' ELSE head.state END AS state
FROM line
JOIN redrive_jobs AS head ON head.id = (
    SELECT first.id FROM redrive_jobs AS first
    WHERE first.queue = :queue AND first.partition = line.partition AND first.partition IS NOT NULL AND (
        first.state = 'ready' OR first.state = 'running' OR first.state = 'waiting'
        OR (first.state = 'dead' AND first.caught_at IS NULL AND first.skipped_at IS NULL)
    )
    ORDER BY first.id
    LIMIT 1
)
