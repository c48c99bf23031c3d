-- Return the history of one job, oldest first.
-- Called by history.
SELECT
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
FROM redrive_history
WHERE job_id = :job_id::bigint
ORDER BY lease_id
