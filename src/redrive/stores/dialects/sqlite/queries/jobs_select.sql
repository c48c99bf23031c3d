-- Return the jobs that match, newest first, in the order of the table, without sorting.
-- Called by select.
SELECT
-- include job_columns.sql
FROM redrive_jobs
WHERE
-- include job_filter.sql
ORDER BY id DESC
LIMIT :count
