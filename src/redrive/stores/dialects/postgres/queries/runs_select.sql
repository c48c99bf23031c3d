-- Return runs, newest first, after the filter.
-- Called by select.
SELECT
-- include run_columns.sql
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE (:workflow::text IS NULL OR run.workflow = :workflow)
    AND (:state::text IS NULL OR job.state = :state)
    AND (:hold::text IS NULL OR job.hold = :hold)
    AND (:parent_id::bigint IS NULL OR run.parent_id = :parent_id)
    AND run.job_id < coalesce(:before_id::bigint, 9223372036854775807)
    AND run.job_id >= coalesce(:from_id::bigint, 0)
ORDER BY run.job_id DESC
LIMIT :count::bigint
