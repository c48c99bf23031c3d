-- Answers one schedule; until the end of the transaction nobody else changes it.
-- Called by fire, trigger and every change of a schedule.
SELECT name, kind, document, timing, declared_at, paused_at, resumed_at, next_at, job_id, queued_at
FROM redrive_schedules
WHERE name = :name
FOR UPDATE
