-- Return these jobs, in the order of their ids.
-- Called by cancel for the family of a run. SQLite needs no lock.
SELECT
-- include job_columns.sql
FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids))
