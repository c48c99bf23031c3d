-- Return the running jobs with a worker that is not in this database.
-- Called by check.
SELECT job.id, 'job ' || job.id || ' runs on worker ' || job.worker_id || ', which is unknown' AS text,
    'holders' AS rule
FROM redrive_jobs AS job
LEFT JOIN redrive_workers AS worker ON worker.id = job.worker_id
WHERE job.state = 'running' AND worker.id IS NULL
LIMIT :count::bigint
