-- Return the jobs that occupy slots of these limited queues, oldest first; at most a number for each queue.
-- Called by holders, status and circumstances.
SELECT queue, id, partition
FROM (
    SELECT queue, id, partition, row_number() OVER (PARTITION BY queue ORDER BY id) AS place
    FROM (
        SELECT slot AS queue, id, partition FROM redrive_jobs WHERE slot IN (SELECT value FROM json_each(:queues))
        UNION ALL
        SELECT queue, job_id AS id, partition FROM redrive_unstopped AS other
        WHERE queue IN (SELECT value FROM json_each(:queues))
            AND EXISTS (SELECT 1 FROM redrive_workers AS worker WHERE worker.id = other.worker_id AND worker.stopped_at IS NULL)
    )
)
WHERE place <= :count
ORDER BY id
