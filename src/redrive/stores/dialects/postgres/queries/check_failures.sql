-- Return the jobs that count more failures than their history has.
-- Called by check.
SELECT id, 'job ' || id || ' counts ' || failures || ' failures, but its history has ' || told_failures AS text,
    'failures' AS rule
FROM (
    SELECT job.id, job.failures, (
            SELECT count(*) FROM redrive_attempts AS line
            WHERE line.job_id = job.id AND line.outcome IN ('failed', 'lost')
        ) AS told_failures
    FROM redrive_jobs AS job
    WHERE job.id > :after_id::bigint AND job.id <= :until::bigint AND job.failures > 0
        -- The history of a catch job keeps its newest attempts only.
        AND (job.parent_id IS NULL OR job.attempt <= :history::integer)
) AS told
WHERE failures > told_failures
LIMIT :count::bigint
