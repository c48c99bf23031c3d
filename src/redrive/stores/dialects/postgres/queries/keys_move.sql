-- Move the keys of one job to another.
-- Called by enqueue for an idempotency key of a request that another job serves.
UPDATE redrive_keys SET job_id = :to_id::bigint WHERE job_id = :from_id::bigint
