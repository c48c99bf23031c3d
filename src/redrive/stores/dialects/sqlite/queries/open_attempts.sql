-- Return the open attempts of these jobs.
-- Called by end_overdue, which has locked them.
SELECT
-- include open_attempt.sql
FROM redrive_jobs AS job
WHERE job.id IN (SELECT value FROM json_each(:ids)) AND job.lease_id IS NOT NULL
