-- Return the runs of a workflow with these ids.
-- Called by start for the runs that existed before, and by the operations that are given the id of a run.
SELECT
-- include run_columns.sql
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.workflow = :workflow AND run.id IN (SELECT value FROM json_each(:ids))
