-- Delete all jobs, with all their rows.
-- Called by empty.
DELETE FROM redrive_jobs
