-- Return the unique keys that jobs hold and should not, and the keys of jobs that do not exist.
-- Called by check.
SELECT held.job_id AS id, 'the ' || held.kind || ' key ' || held.key || ' is held by job ' || held.job_id || ', which '
    || CASE WHEN job.id IS NULL THEN 'is not there' ELSE 'is ' || job.state END AS text, 'keys' AS rule
FROM redrive_keys AS held
LEFT JOIN redrive_jobs AS job ON job.id = held.job_id
WHERE held.job_id > :after_id
    AND held.job_id <= :until
    AND (
        job.id IS NULL
        OR (
            held.kind = 'unique'
            AND (
                job.key IS NULL
                OR job.key <> held.key
                OR job.task <> held.scope
                OR job.state IN ('succeeded', 'dead', 'cancelled')
                OR (job.key_until = 'start' AND job.state <> 'ready')
            )
        )
    )
LIMIT :count
