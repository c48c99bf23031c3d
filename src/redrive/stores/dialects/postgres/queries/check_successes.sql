-- Return the jobs whose number of successes in the history differs from their state.
-- Called by check.
SELECT id, 'job ' || id || ' is ' || state || ', but its history has ' || successes || ' successes' AS text,
    'successes' AS rule
FROM (
    SELECT job.id, job.state, (
            SELECT count(*) FROM redrive_attempts AS line WHERE line.job_id = job.id AND line.outcome = 'succeeded'
        ) AS successes
    FROM redrive_jobs AS job
    WHERE job.id > :after_id::bigint AND job.id <= :until::bigint
) AS told
WHERE (state = 'succeeded' AND successes <> 1) OR (state <> 'succeeded' AND successes <> 0)
LIMIT :count::bigint
