-- Return the jobs that should hold their unique key and do not.
-- Called by check.
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' and does not hold its key ' || job.key AS text,
    'keys' AS rule
FROM redrive_jobs AS job
WHERE job.id > :after_id
    AND job.id <= :until
    AND job.key IS NOT NULL
    AND (job.state = 'ready' OR (job.key_until = 'end' AND job.state IN ('running', 'waiting')))
    AND NOT EXISTS (
        SELECT 1 FROM redrive_keys AS held
        WHERE held.kind = 'unique' AND held.scope = job.task AND held.key = job.key AND held.job_id = job.id
    )
LIMIT :count
