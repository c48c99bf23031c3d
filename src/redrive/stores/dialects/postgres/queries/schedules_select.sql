-- Return these schedules, or all.
-- Called by select, declare and introduce, and when one of their jobs has ended.
-- transaction: none
SELECT name, kind, document, timing, declared_at, paused_at, resumed_at, next_at, job_id, queued_at, created
FROM redrive_schedules
WHERE :names::text[] IS NULL OR name = ANY (:names)
ORDER BY name
