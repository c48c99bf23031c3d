-- Return the jobs that occupy slots of these limited queues, oldest first; at most a number for each queue.
-- Called by holders, status and circumstances.
SELECT given.queue, running.id, running.partition
FROM unnest(:queues::text[]) AS given (queue)
CROSS JOIN LATERAL (
    SELECT id, partition FROM redrive_jobs WHERE slot = given.queue
    UNION ALL
    SELECT job_id AS id, partition FROM redrive_unstopped AS other
    WHERE queue = given.queue
        AND EXISTS (SELECT FROM redrive_workers AS worker WHERE worker.id = other.worker_id AND worker.stopped_at IS NULL)
    ORDER BY id
    LIMIT :count::bigint
) AS running
ORDER BY running.id
