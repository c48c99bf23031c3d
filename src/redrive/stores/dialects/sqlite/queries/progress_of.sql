-- Return the last progress report of one job, if there is one.
-- Called by progress.
SELECT job_id, lease_id, details, at FROM redrive_progress WHERE job_id = :job_id
