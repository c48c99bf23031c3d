-- Answers which of these leases have a history line already, and what it says.
-- Called by settle for leases that are not current: was it lost, or is this the second try of a commit whose reply got lost?
SELECT lease_id, outcome FROM redrive_attempts
WHERE job_id = ANY (:job_ids::bigint[]) AND lease_id = ANY (:lease_ids::bigint[])
