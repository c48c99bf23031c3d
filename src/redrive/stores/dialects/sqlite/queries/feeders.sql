-- Return the live workers that serve the feeders of a subscription, each with the number of these that it runs.
-- Called by feeders.
SELECT
    worker.id,
    (
        SELECT count(*) FROM redrive_jobs
        WHERE worker_id = worker.id AND state = 'running' AND task = :task
    ) AS shards
FROM redrive_workers AS worker
WHERE worker.stopped_at IS NULL AND worker.expires_at > coalesce(:now, (SELECT now FROM redrive_clock))
    AND (worker.tasks IS NULL OR :task IN (SELECT value FROM json_each(worker.tasks)))
    AND (worker.queues IS NULL OR :queue IN (SELECT value FROM json_each(worker.queues)))
    AND (worker.excluded IS NULL OR NOT (:queue IN (SELECT value FROM json_each(worker.excluded))))
ORDER BY worker.id
