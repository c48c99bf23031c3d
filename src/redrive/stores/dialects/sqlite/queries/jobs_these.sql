-- Return those of these jobs that match, by id, ascending or descending.
-- Called by select if the jobs are few.
SELECT
-- include job_columns.sql
FROM redrive_jobs
WHERE
-- include job_filter.sql
    AND id IN (SELECT value FROM json_each(:ids))
ORDER BY CASE WHEN :oldest_first THEN id ELSE -id END
LIMIT :count
