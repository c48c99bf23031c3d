-- Return the random part of a job's idempotency key.
-- Called by salt.
SELECT salt FROM redrive_jobs WHERE id = :id::bigint
