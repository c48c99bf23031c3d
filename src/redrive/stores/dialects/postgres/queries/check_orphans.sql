-- Return the rows that belong to jobs that do not exist.
-- Called by check.
SELECT job_id AS id, 'there is ' || what || ' of job ' || job_id || ', which is not there' AS text, 'orphans' AS rule
FROM (
    SELECT 'a payload' AS what, job_id FROM redrive_payloads WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
    UNION ALL
    SELECT 'a result', job_id FROM redrive_results WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
    UNION ALL
    SELECT DISTINCT 'a history', job_id FROM redrive_attempts WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
) AS part
WHERE NOT EXISTS (SELECT FROM redrive_jobs AS job WHERE job.id = part.job_id)
LIMIT :count::bigint
