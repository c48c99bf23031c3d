-- Return the live workers that serve the feeders of a subscription, each with the number of these that it runs.
-- Called by feeders.
SELECT
    worker.id,
    (
        SELECT count(*) FROM redrive_jobs
        WHERE worker_id = worker.id AND state = 'running' AND task = :task::text
    ) AS shards
FROM redrive_workers AS worker
WHERE worker.stopped_at IS NULL AND worker.expires_at > coalesce(:now::timestamptz, (SELECT now FROM redrive_clock))
    AND (worker.tasks IS NULL OR :task = ANY (worker.tasks))
    AND (worker.queues IS NULL OR :queue::text = ANY (worker.queues))
    AND (worker.excluded IS NULL OR NOT (:queue = ANY (worker.excluded)))
ORDER BY worker.id
