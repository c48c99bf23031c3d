-- Return the runs of these jobs, and which other rows they have.
-- Called by claim for the runs among the claimed jobs.
-- transaction: none
SELECT
    EXISTS (SELECT FROM redrive_steps WHERE run_id = run.job_id) AS has_steps,
    EXISTS (SELECT FROM redrive_signals WHERE run_id = run.job_id AND path IS NULL AND name <> :child::text) AS has_signals,
    EXISTS (
        SELECT FROM redrive_steps
        WHERE run_id = run.job_id AND outcome = 'waiting' AND kind IN ('event', 'call')
    ) AS has_waits,
-- include run_columns.sql
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.job_id = ANY (:ids::bigint[])
