-- Return which of these leases have a history entry, and its outcome.
-- Called by settle for leases that are not current: lost, or settled by an earlier commit whose reply was lost?
SELECT lease_id, outcome FROM redrive_history
WHERE job_id = ANY (:job_ids::bigint[]) AND lease_id = ANY (:lease_ids::bigint[])
