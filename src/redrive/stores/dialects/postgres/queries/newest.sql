-- Return the largest id of a job, or NULL if there is none.
-- Called by survey and check, to know where to stop.
SELECT max(id) FROM redrive_jobs
