-- Return instances with a transition that has ended without a move, or belongs to another instance.
-- Called by check; it reads the instances with a transition, and no others.
SELECT instance.job_id AS id, instance.machine || '/' || instance.key || ' waits for job ' || instance.job_id || ', which '
    || CASE
        WHEN job.id IS NULL THEN 'is not there'
        WHEN job.origin = 'machine:' || instance.machine || '/' || instance.key THEN 'is ' || job.state
        ELSE 'is for ' || coalesce(job.origin, 'nothing')
    END AS text,
    'machines' AS rule
FROM redrive_instances AS instance
LEFT JOIN redrive_jobs AS job ON job.id = instance.job_id
WHERE instance.job_id IS NOT NULL
    AND instance.status <> 'failed'
    AND (
        job.id IS NULL
        OR job.state = 'succeeded'
        OR job.state = 'cancelled'
        OR (job.state = 'dead' AND NOT EXISTS (
            SELECT 1 FROM redrive_jobs AS catching
            WHERE catching.parent_id = job.id
                AND (catching.state = 'ready' OR catching.state = 'running' OR catching.state = 'waiting')
        ))
        OR job.origin IS NULL
        OR job.origin <> 'machine:' || instance.machine || '/' || instance.key
    )
LIMIT :count
