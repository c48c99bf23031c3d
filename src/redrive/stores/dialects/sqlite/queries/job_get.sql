-- Return one job.
-- Called by get.
SELECT
-- include job_columns.sql
FROM redrive_jobs
WHERE id = :id
