-- Return the jobs of a stride that ended, were kept as long as required, and have no catch jobs any more.
-- Called by survey; the stored time of a task takes precedence over the caller's, and an empty text means for ever.
SELECT job.id
FROM redrive_jobs AS job
LEFT JOIN redrive_meta AS kept ON kept.key = 'keep:' || job.task
LEFT JOIN redrive_meta AS kept_dead ON kept_dead.key = 'keep_dead:' || job.task
LEFT JOIN redrive_meta AS kept_cancelled ON kept_cancelled.key = 'keep_cancelled:' || job.task
WHERE job.id > :after_id
    AND job.id <= :until
    AND job.state IN ('succeeded', 'cancelled', 'dead')
    AND CASE
        WHEN job.state = 'dead' AND job.caught_at IS NULL THEN
            job.finished_at
            + CASE WHEN kept_dead.key IS NULL THEN :keep_dead ELSE CAST(nullif(kept_dead.value, '') AS INTEGER) END
        WHEN job.state = 'cancelled' THEN
            job.finished_at + CASE
                WHEN kept_cancelled.key IS NULL THEN :keep_cancelled
                ELSE CAST(nullif(kept_cancelled.value, '') AS INTEGER)
            END
        ELSE
            coalesce(job.caught_at, job.finished_at)
            + CASE WHEN kept.key IS NULL THEN :keep ELSE CAST(nullif(kept.value, '') AS INTEGER) END
    END <= :now
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs AS child WHERE child.parent_id = job.id)
    -- a run reads the results of the runs that it has called
    AND NOT EXISTS (
        SELECT 1 FROM redrive_runs AS called
        JOIN redrive_jobs AS caller ON caller.id = called.parent_id
        WHERE called.job_id = job.id AND caller.state IN ('ready', 'running', 'waiting')
    )
ORDER BY job.id
