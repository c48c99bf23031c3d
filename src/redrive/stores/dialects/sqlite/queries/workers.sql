-- Answers the workers that are registered and have not left; no session of SQLite holds a lock for one.
-- Called by workers.
SELECT
    id, name, host, pid, birth, lock_id, concurrency, queues, tasks, started_at, heartbeat_at, expires_at, stopped_at,
    trouble,
    NULL AS locked
FROM redrive_workers
WHERE stopped_at IS NULL
ORDER BY id
