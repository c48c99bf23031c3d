-- Return, for each of these dead jobs, the class of its last exception and its latest catch job, where there are such.
-- Called by status and circumstances, to name the error and to find whether the job is still being caught.
SELECT job.id, attempt.error_type, child.id, child.task, child.state
FROM redrive_jobs AS job
LEFT JOIN redrive_attempts AS attempt
    ON attempt.job_id = job.id
    AND attempt.lease_id = (SELECT max(lease_id) FROM redrive_attempts WHERE job_id = job.id)
LEFT JOIN redrive_jobs AS child ON child.id = (SELECT max(id) FROM redrive_jobs WHERE parent_id = job.id)
WHERE job.id IN (SELECT value FROM json_each(:ids))
