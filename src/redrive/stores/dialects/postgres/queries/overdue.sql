-- Return attempts without an external completion in time.
-- Called by expire_waits, up to a budget, in the order of the index; locked rows are left out.
SELECT
-- include open_attempt.sql
FROM redrive_jobs AS job
WHERE job.state = 'waiting' AND job.scheduled_at <= :now::timestamptz
ORDER BY job.scheduled_at
LIMIT :budget::bigint
FOR UPDATE SKIP LOCKED
