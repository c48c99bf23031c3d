-- Return the largest id of a job, or NULL if there is none.
-- Called by check, to find where to stop.
SELECT max(id) FROM redrive_jobs
