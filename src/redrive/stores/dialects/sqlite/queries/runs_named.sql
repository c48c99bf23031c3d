-- Return the runs of a workflow with these ids.
-- Called by start for the runs that existed before, and by the operations that are given the id of a run.
SELECT
    run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
    run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
    CASE WHEN job.hold = 'held' THEN job.note END AS held,
    CASE WHEN job.hold = 'held' THEN job.unreadable_at END AS held_at
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.workflow = :workflow AND run.id IN (SELECT value FROM json_each(:ids))
