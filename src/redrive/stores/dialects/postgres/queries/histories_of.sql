-- Return the closed attempts of several jobs, oldest first in each.
-- Called by entries.
SELECT
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
FROM redrive_history
WHERE job_id = ANY (:ids::bigint[])
ORDER BY job_id, lease_id
