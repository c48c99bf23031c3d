-- Write the state of a schedule.
-- Called by fire, trigger, pause and resume, and when the predecessor of a queued occurrence ends.
UPDATE redrive_schedules SET
    paused_at = :paused_at::timestamptz,
    resumed_at = :resumed_at::timestamptz,
    next_at = :next_at::timestamptz,
    job_id = :job_id::bigint,
    queued_at = :queued_at::timestamptz
WHERE name = :name
