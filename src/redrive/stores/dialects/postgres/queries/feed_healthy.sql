-- Reset the crashes of a feeder that has made progress.
-- Called by turn, once for each lease of a feeder that was lost before.
UPDATE redrive_jobs SET crashes = 0 WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint
