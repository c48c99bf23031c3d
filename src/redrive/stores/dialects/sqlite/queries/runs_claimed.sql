-- Return the runs of these jobs, and which other rows they have.
-- Called by claim for the runs among the claimed jobs.
SELECT
    EXISTS (SELECT 1 FROM redrive_steps WHERE run_id = run.job_id) AS has_steps,
    EXISTS (SELECT 1 FROM redrive_signals WHERE run_id = run.job_id AND path IS NULL AND name <> :child) AS has_signals,
    EXISTS (
        SELECT 1 FROM redrive_steps
        WHERE run_id = run.job_id AND outcome = 'waiting' AND kind IN ('event', 'call')
    ) AS has_waits,
-- include run_columns.sql
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.job_id IN (SELECT value FROM json_each(:ids))
