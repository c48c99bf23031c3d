-- Return the jobs that match, are dead and were not caught, oldest first, independent of the size of the table.
-- Called by select, and by redrive to find its jobs.
SELECT
-- include job_columns.sql
FROM redrive_jobs AS job
WHERE
-- include job_filter.sql
    AND state = 'dead'
    AND caught_at IS NULL
ORDER BY id
LIMIT :count::bigint
