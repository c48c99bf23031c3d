-- Return the workers that are registered and have not left, and whether the session of each still holds its lock.
-- Called by workers. No session of SQLite holds a lock.
SELECT
    id, name, host, pid, birth, lock_id, concurrency, queues, tasks, started_at, heartbeat_at, expires_at, stopped_at,
    trouble, version, excluded,
    NULL AS locked
FROM redrive_workers
WHERE stopped_at IS NULL
ORDER BY id
