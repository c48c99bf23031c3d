-- Return the first job of each of these lines of ordered queues, which blocks those behind it.
-- Called by status and circumstances.
SELECT given.queue, given.partition, head.id, head.state
FROM unnest(:queue::text[], :partition::text[]) AS given (queue, partition)
CROSS JOIN LATERAL (
    SELECT id, state FROM redrive_jobs AS job
    WHERE job.queue = given.queue AND job.partition = given.partition AND job.partition IS NOT NULL AND (
        state = 'ready' OR state = 'running' OR state = 'waiting'
        OR (state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL)
    )
    ORDER BY id
    LIMIT 1
) AS head
