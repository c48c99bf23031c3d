-- Extend the time of an attempt, if its lease is still current.
-- Called by prolong, for a catch job of a task with a long timeout.
UPDATE redrive_jobs SET timeout_for = :timeout_for::interval WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint
