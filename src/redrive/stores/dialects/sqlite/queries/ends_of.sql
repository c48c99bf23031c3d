-- Return the state of jobs, and how they ended.
-- Called by ends, while a caller waits for several results.
SELECT id, task, state, enqueued_at, reason, error, note FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids))
