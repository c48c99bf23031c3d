-- Return the runs of these jobs, and which other rows they have.
-- Called by claim for the runs among the claimed jobs.
SELECT
    run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
    run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
    CASE WHEN job.hold = 'held' THEN job.note END AS held,
    CASE WHEN job.hold = 'held' THEN job.unreadable_at END AS held_at,
    EXISTS (SELECT 1 FROM redrive_steps WHERE run_id = run.job_id) AS has_steps,
    EXISTS (SELECT 1 FROM redrive_signals WHERE run_id = run.job_id AND path IS NULL AND name <> :child) AS has_signals,
    EXISTS (
        SELECT 1 FROM redrive_steps
        WHERE run_id = run.job_id AND outcome = 'waiting' AND kind IN ('event', 'call')
    ) AS has_waits
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.job_id IN (SELECT value FROM json_each(:ids))
