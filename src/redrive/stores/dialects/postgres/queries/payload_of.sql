-- Answers the arguments of one job.
-- Called by payload, for catch requests and for people.
SELECT payload FROM redrive_payloads WHERE job_id = :job_id::bigint
