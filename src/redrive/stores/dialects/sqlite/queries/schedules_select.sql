-- Return these schedules, or all.
-- Called by select, declare and introduce, and when one of their jobs has ended.
SELECT name, kind, document, timing, declared_at, paused_at, resumed_at, next_at, job_id, queued_at, created
FROM redrive_schedules
WHERE :names IS NULL OR name IN (SELECT value FROM json_each(:names))
ORDER BY name
