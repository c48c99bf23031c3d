-- Return the number of running handlers of one limited queue by partition, including those with attempts that have ended.
-- Called by claim under the lock of the queue.
SELECT partition, count(*) AS held
FROM (
    SELECT partition FROM redrive_jobs WHERE slot = :queue
    UNION ALL
    SELECT partition FROM redrive_unstopped AS other
    WHERE queue = :queue
        AND EXISTS (SELECT FROM redrive_workers AS worker WHERE worker.id = other.worker_id AND worker.stopped_at IS NULL)
) AS running
GROUP BY partition
