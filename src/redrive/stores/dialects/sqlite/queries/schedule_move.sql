-- Write the state of a schedule.
-- Called by fire, trigger, pause and resume, and when the predecessor of a queued occurrence ends.
UPDATE redrive_schedules SET
    paused_at = :paused_at,
    resumed_at = :resumed_at,
    next_at = :next_at,
    job_id = :job_id,
    queued_at = :queued_at
WHERE name = :name
