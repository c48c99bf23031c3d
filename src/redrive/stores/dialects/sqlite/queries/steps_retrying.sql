-- Return the steps that wait for their next try, by its time.
-- Called by retrying.
SELECT
    step.run_id, job.task, run.id, step.path, step.name, step.tries, step.due_at, step.at, step.error
FROM redrive_steps AS step
JOIN redrive_jobs AS job ON job.id = step.run_id
LEFT JOIN redrive_runs AS run ON run.job_id = step.run_id
WHERE step.outcome = 'waiting' AND step.tries > 0
    AND (:task IS NULL OR job.task = :task)
    AND (:before IS NULL OR step.due_at <= :before)
ORDER BY step.due_at, step.run_id
LIMIT :count
