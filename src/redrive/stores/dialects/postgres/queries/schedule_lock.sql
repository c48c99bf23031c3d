-- Return one schedule, and lock it until the transaction ends.
-- Called by fire, trigger, create, delete and every change of a schedule. SQLite needs no lock.
SELECT name, kind, document, timing, declared_at, paused_at, resumed_at, next_at, job_id, queued_at, created
FROM redrive_schedules
WHERE name = :name
FOR UPDATE
