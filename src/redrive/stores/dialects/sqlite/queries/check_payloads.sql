-- Return the unfinished jobs without arguments; catch jobs use those of their parents.
-- Called by check.
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' and has no arguments' AS text, 'payloads' AS rule
FROM redrive_jobs AS job
WHERE job.id > :after_id
    AND job.id <= :until
    AND job.parent_id IS NULL
    AND job.state IN ('ready', 'running', 'waiting')
    AND NOT EXISTS (SELECT 1 FROM redrive_payloads AS kept WHERE kept.job_id = job.id)
LIMIT :count
