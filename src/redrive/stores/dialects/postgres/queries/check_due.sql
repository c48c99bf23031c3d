-- Return the jobs that wait for a retry at another time than was decided.
-- Called by check.
SELECT id, 'job ' || id || ' is to be retried at another time than its history says' AS text, 'due' AS rule
FROM (
    SELECT job.id, job.scheduled_at, (
            SELECT line.finished_at + line.delay FROM redrive_attempts AS line
            WHERE line.job_id = job.id ORDER BY line.lease_id DESC LIMIT 1
        ) AS decided_at
    FROM redrive_jobs AS job
    WHERE job.id > :after_id::bigint AND job.id <= :until::bigint AND job.state = 'ready' AND job.hold = 'retry'
) AS told
WHERE decided_at <> scheduled_at
LIMIT :count::bigint
