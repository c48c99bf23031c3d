-- Writes where a schedule stands.
-- Called by fire, trigger, pause and resume, and where the job ends that an occurrence waits for.
UPDATE redrive_schedules SET
    paused_at = :paused_at::timestamptz,
    resumed_at = :resumed_at::timestamptz,
    next_at = :next_at::timestamptz,
    job_id = :job_id::bigint,
    queued_at = :queued_at::timestamptz
WHERE name = :name
