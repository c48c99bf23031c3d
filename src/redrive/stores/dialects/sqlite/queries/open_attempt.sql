-- Return the open attempt of one job, if it has this lease, and lock it.
-- Called by complete, which ends it. SQLite needs no lock.
SELECT
-- include open_attempt.sql
FROM redrive_jobs AS job
WHERE job.id = :job_id AND job.lease_id = :lease_id
