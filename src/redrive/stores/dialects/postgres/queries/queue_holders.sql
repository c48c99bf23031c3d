-- Return the jobs that occupy slots of a limited queue, oldest first.
-- Called by holders, status and circumstances.
SELECT id, partition
FROM (
    SELECT id, partition FROM redrive_jobs WHERE slot = :queue
    UNION ALL
    SELECT job_id AS id, partition FROM redrive_unstopped AS other
    WHERE queue = :queue
        AND EXISTS (SELECT FROM redrive_workers AS worker WHERE worker.id = other.worker_id AND worker.stopped_at IS NULL)
) AS running
ORDER BY id
LIMIT :count::bigint
