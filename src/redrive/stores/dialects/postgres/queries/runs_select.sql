-- Return runs, newest first, after the filter.
-- Called by select.
SELECT
    run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
    run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
    CASE WHEN job.hold = 'held' THEN job.note END AS held,
    CASE WHEN job.hold = 'held' THEN job.unreadable_at END AS held_at
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
