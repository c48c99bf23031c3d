-- Return the runs of these jobs, and which other rows they have.
-- Called by claim for the runs among the claimed jobs.
-- transaction: none
SELECT
    EXISTS (SELECT FROM redrive_steps WHERE run_id = run.job_id OFFSET 0) AS has_steps,
    EXISTS (
        SELECT FROM redrive_signals WHERE run_id = run.job_id AND path IS NULL AND name <> :child::text OFFSET 0
    ) AS has_signals,
    EXISTS (
        SELECT FROM redrive_steps
        WHERE run_id = run.job_id AND outcome = 'waiting' AND kind IN ('event', 'call')
        OFFSET 0
    ) AS has_waits,
-- include run_columns.sql
FROM redrive_runs AS run
CROSS JOIN LATERAL (SELECT hold, note, unreadable_at FROM redrive_jobs WHERE id = run.job_id OFFSET 0) AS job
WHERE run.job_id = ANY (:ids::bigint[])
