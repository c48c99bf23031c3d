-- Return what operators ask of these runs.
-- Called by news.
-- transaction: none
SELECT job_id, cancel_why, paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now::timestamptz)
FROM redrive_runs
WHERE job_id = ANY (:ids::bigint[])
