-- Return the closed attempts of several jobs, oldest first in each.
-- Called by entries. SQLite would read the whole view redrive_history for a list of ids.
SELECT
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
FROM redrive_attempts
WHERE job_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT
    id, success_lease_id, attempt, success_worker_id, claimed_at, finished_at, 'succeeded', NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL
FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids)) AND success_lease_id IS NOT NULL
ORDER BY job_id, lease_id
