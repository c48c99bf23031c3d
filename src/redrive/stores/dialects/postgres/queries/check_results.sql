-- Return the results of jobs that have not succeeded.
-- Called by check.
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' and has a result' AS text, 'results' AS rule
FROM redrive_results AS kept
JOIN redrive_jobs AS job ON job.id = kept.job_id
WHERE kept.job_id > :after_id::bigint AND kept.job_id <= :until::bigint AND job.state <> 'succeeded'
LIMIT :count::bigint
