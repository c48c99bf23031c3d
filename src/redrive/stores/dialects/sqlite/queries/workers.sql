-- Answers the workers that are registered and have not left.
-- Called by workers.
SELECT id, name, concurrency, queues, started_at, heartbeat_at, expires_at, stopped_at
FROM redrive_workers
WHERE stopped_at IS NULL
ORDER BY id
