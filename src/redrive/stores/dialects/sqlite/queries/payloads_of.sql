-- Return the arguments of jobs, with the ids of the jobs.
-- Called by entries.
SELECT job_id, payload FROM redrive_payloads WHERE job_id IN (SELECT value FROM json_each(:ids))
