-- Hands the keys of one job to another.
-- Called by enqueue for an idempotency key whose request another job stands for.
UPDATE redrive_keys SET job_id = :to_id WHERE job_id = :from_id
