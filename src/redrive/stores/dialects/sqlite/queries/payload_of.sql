-- Return the arguments of one job.
-- Called by payload and material.
SELECT payload FROM redrive_payloads WHERE job_id = :job_id
