-- Return which of these leases have a history entry, and its outcome.
-- Called by settle for leases that are not current: lost, or settled by an earlier commit whose reply was lost?
SELECT lease_id, outcome FROM redrive_attempts
WHERE job_id IN (SELECT value FROM json_each(:job_ids)) AND lease_id IN (SELECT value FROM json_each(:lease_ids))
