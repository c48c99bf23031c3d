-- Writes where a schedule stands.
-- Called by fire, trigger, pause and resume, and where the job ends that an occurrence waits for.
UPDATE redrive_schedules SET
    paused_at = :paused_at,
    resumed_at = :resumed_at,
    next_at = :next_at,
    job_id = :job_id,
    queued_at = :queued_at
WHERE name = :name
