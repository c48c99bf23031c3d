-- Return the oldest of the newest runs before a job, a limited number of them; NULL if there are no more.
-- Called by search.
SELECT job_id FROM redrive_runs
WHERE job_id < :before_id
ORDER BY job_id DESC
LIMIT 1 OFFSET :budget
