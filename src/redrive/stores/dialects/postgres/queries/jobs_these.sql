-- Return those of these jobs that match, by id, ascending or descending.
-- Called by select if the jobs are few.
SELECT
-- include job_columns.sql
FROM redrive_jobs AS job
WHERE
-- include job_filter.sql
    AND id = ANY (:ids::bigint[])
ORDER BY CASE WHEN :oldest_first::boolean THEN id ELSE -id END
LIMIT :count::bigint
