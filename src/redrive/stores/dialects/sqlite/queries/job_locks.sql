-- Return these jobs without those that others have locked, and lock them until the transaction ends.
-- Called by end_overdue for the jobs of items with deadlines in the past, and by delete. SQLite needs no lock.
SELECT
-- include job_columns.sql
FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids))
