-- Return the jobs that match and wait for one reason, by due time, without sorting.
-- Called by select.
SELECT
-- include job_columns.sql
FROM redrive_jobs AS job
WHERE
-- include job_filter.sql
    AND hold = :hold::text
ORDER BY scheduled_at, id
LIMIT :count::bigint
