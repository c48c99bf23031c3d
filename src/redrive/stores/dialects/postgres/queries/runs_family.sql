-- Return a run, and the runs that it has called, newest first.
-- Called by timeline.
SELECT
    run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
    run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
    CASE WHEN job.hold = 'held' THEN job.note END AS held,
    CASE WHEN job.hold = 'held' THEN job.unreadable_at END AS held_at
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.workflow = :workflow::text AND run.id = :id::text
UNION ALL
SELECT * FROM (
    SELECT
        run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
        run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
        CASE WHEN job.hold = 'held' THEN job.note END AS held,
        CASE WHEN job.hold = 'held' THEN job.unreadable_at END AS held_at
    FROM redrive_runs AS run
    JOIN redrive_jobs AS job ON job.id = run.job_id
    WHERE run.parent_id = (SELECT job_id FROM redrive_runs WHERE workflow = :workflow AND id = :id)
    ORDER BY run.job_id DESC
    LIMIT :count::bigint
) AS child
