-- Return the jobs with a present attempt that has ended already, according to the history.
-- Called by check.
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' under lease ' || job.lease_id
    || ', but its history says that this attempt has ' || line.outcome AS text,
    'settled' AS rule
FROM redrive_jobs AS job
JOIN redrive_attempts AS line ON line.job_id = job.id AND line.lease_id = job.lease_id
WHERE job.id > :after_id AND job.id <= :until AND job.lease_id IS NOT NULL
LIMIT :count
