-- Return the jobs that match, oldest first, in the order of the table, without sorting.
-- Called by select, and by operations on many jobs to find theirs.
SELECT
-- include job_columns.sql
FROM redrive_jobs
WHERE
-- include job_filter.sql
ORDER BY id
LIMIT :count
