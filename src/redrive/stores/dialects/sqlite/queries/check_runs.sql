-- Return the runs with parts that do not belong together.
-- Called by check.
SELECT id, text, 'runs' AS rule
FROM (
    SELECT run.job_id AS id, 'run ' || run.id || ' of ' || run.workflow || ' has job ' || run.job_id
        || ', which is not there or was made for something else' AS text
    FROM redrive_runs AS run
    LEFT JOIN redrive_jobs AS job ON job.id = run.job_id
    WHERE run.job_id > :after_id AND run.job_id <= :until
        AND (job.id IS NULL OR coalesce(job.origin, '') <> 'run:' || run.workflow || '/' || run.id)
    UNION ALL
    SELECT job.id, 'job ' || job.id || ' is that of a run, which is not there'
    FROM redrive_jobs AS job
    WHERE job.id > :after_id AND job.id <= :until AND (job.origin LIKE 'run:%' OR job.hold IN ('parked', 'paused'))
        AND NOT EXISTS (SELECT 1 FROM redrive_runs AS run WHERE run.job_id = job.id)
    UNION ALL
    SELECT step.run_id, 'step ' || step.path || ' belongs to job ' || step.run_id || ', which is not there'
    FROM redrive_steps AS step
    WHERE step.run_id > :after_id AND step.run_id <= :until
        AND NOT EXISTS (SELECT 1 FROM redrive_jobs AS job WHERE job.id = step.run_id)
    UNION ALL
    SELECT step.run_id, 'step ' || step.path || ' of job ' || step.run_id || ' waits for run ' || step.ref
        || ', which is not there'
    FROM redrive_steps AS step
    WHERE step.run_id > :after_id AND step.run_id <= :until AND step.kind = 'call'
        AND step.outcome = 'waiting' AND step.error IS NULL
        AND NOT EXISTS (SELECT 1 FROM redrive_runs AS run WHERE run.job_id = step.ref)
    UNION ALL
    SELECT signal.run_id, 'signal ' || signal.id || ' was read by step ' || signal.path || ' of job ' || signal.run_id
        || ', which received another one or is not there'
    FROM redrive_signals AS signal
    WHERE signal.run_id > :after_id AND signal.run_id <= :until AND signal.path IS NOT NULL
        AND NOT EXISTS (
            SELECT 1 FROM redrive_steps AS step
            WHERE step.run_id = signal.run_id AND step.path = signal.path AND step.ref = signal.id
        )
) AS found
LIMIT :count
