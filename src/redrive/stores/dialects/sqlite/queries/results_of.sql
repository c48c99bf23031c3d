-- Return the results of jobs, with the ids of the jobs; a handler that returned None has left none.
-- Called by ends and entries.
SELECT job_id, result FROM redrive_results
WHERE job_id IN (SELECT value FROM json_each(:ids))
