-- Return claims of dead workers, and claims that exceeded their hard timeout.
-- Called by sweep, up to a budget, without sorting; jobs that another sweep or a settle has locked are left out.
SELECT
-- include open_attempt.sql
FROM redrive_jobs AS job
LEFT JOIN redrive_workers AS worker ON worker.id = job.worker_id AND worker.stopped_at IS NULL
WHERE job.state = 'running'
    AND (job.hold IS NULL OR job.scheduled_at <= :now::timestamptz)
    AND (
        worker.id IS NULL
        OR (
            job.claimed_at + job.timeout_for + :grace::interval <= :now::timestamptz
            -- A worker that was cut off from the database has some time to settle attempts that have ended.
            AND coalesce(worker.resumed_at + :grace <= :now, true)
            AND (:every::interval IS NULL OR worker.heartbeat_at > :now - :every)
        )
    )
ORDER BY job.worker_id, job.id
LIMIT :budget::bigint
FOR UPDATE OF job SKIP LOCKED
