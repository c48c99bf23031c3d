-- Return the workers that have not left, their running jobs, and whether the session of each still holds its lock.
-- Called by workers, examine, status and circumstances. No session of SQLite holds a lock.
-- transaction: none
SELECT
    id, name, host, pid, birth, lock_id, concurrency, queues, tasks, started_at, heartbeat_at, expires_at, stopped_at,
    trouble, version, excluded,
    (SELECT count(*) FROM redrive_jobs WHERE state = 'running' AND worker_id = worker.id) AS running,
    CASE WHEN lock_id IS NOT NULL THEN EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid = 'redrive_meta'::regclass
            AND objid = worker.lock_id::oid
            AND objsubid = 2
            AND granted
    ) END AS locked
FROM redrive_workers AS worker
WHERE stopped_at IS NULL
ORDER BY id
