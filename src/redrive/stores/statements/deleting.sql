-- The statements of operations/deleting.py.

-- name: catches_of
-- Return the latest catch job of each of these jobs that has one.
-- A job stays as long as its catch job.
-- both
SELECT child.parent_id, child.id, child.task, child.state
FROM redrive_jobs AS child
WHERE child.parent_id = ANY (:ids::bigint[])
    AND child.id = (SELECT max(id) FROM redrive_jobs WHERE parent_id = child.parent_id)

-- name: payloads_of
-- Return the arguments of jobs, with the ids of the jobs.
-- both
SELECT job_id, payload FROM redrive_payloads WHERE job_id = ANY (:ids::bigint[])

-- name: histories_of
-- Return the closed attempts of several jobs, oldest first in each.
-- SQLite would read the whole view redrive_history for a list of ids.
-- postgres
SELECT
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
FROM redrive_history
WHERE job_id = ANY (:ids::bigint[])
ORDER BY job_id, lease_id
-- sqlite
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
