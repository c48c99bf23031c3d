-- Return a run and the runs that it started, directly or not, as far as they have not ended.
-- Called by cancel.
WITH RECURSIVE family AS (
    SELECT job_id FROM redrive_runs WHERE job_id = :id::bigint
    UNION
    SELECT child.job_id
    FROM family
    JOIN redrive_runs AS parent ON parent.job_id = family.job_id
    JOIN redrive_runs AS child ON child.parent_id = parent.job_id
)
SELECT job.id FROM family JOIN redrive_jobs AS job ON job.id = family.job_id
WHERE job.state IN ('ready', 'running', 'waiting')
ORDER BY job.id
