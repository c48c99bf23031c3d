-- Return the arguments of one job.
-- Called by material and fork.
SELECT payload FROM redrive_payloads WHERE job_id = :job_id::bigint
