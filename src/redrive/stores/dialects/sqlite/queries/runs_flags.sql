-- Return what operators ask of these runs.
-- Called by news.
SELECT job_id, cancel_why, paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now)
FROM redrive_runs
WHERE job_id IN (SELECT value FROM json_each(:ids))
