-- Return which of these leases have a history entry, and its outcome.
-- Called by settle for leases that are not current. SQLite would read the whole view redrive_history for a list of ids.
SELECT lease_id, outcome FROM redrive_attempts
WHERE job_id IN (SELECT value FROM json_each(:job_ids)) AND lease_id IN (SELECT value FROM json_each(:lease_ids))
UNION ALL
SELECT success_lease_id, 'succeeded' FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:job_ids)) AND success_lease_id IN (SELECT value FROM json_each(:lease_ids))
