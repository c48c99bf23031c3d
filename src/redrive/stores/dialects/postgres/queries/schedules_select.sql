-- Answers these schedules, or all.
-- Called where one of their jobs has ended, and by select.
SELECT name, kind, document, timing, declared_at, paused_at, resumed_at, next_at, job_id, queued_at
FROM redrive_schedules
WHERE :names::text[] IS NULL OR name = ANY (:names)
ORDER BY name
