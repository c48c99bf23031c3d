-- Replace the arguments of runs that begin again.
-- Called by settle.
UPDATE redrive_payloads AS kept SET payload = given.payload
FROM unnest(:job_id::bigint[], :payload::bytea[]) AS given (job_id, payload)
WHERE kept.job_id = ANY (:job_id) AND kept.job_id = given.job_id
