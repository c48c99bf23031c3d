-- Delete all schedules; the next worker declares those of its code again.
-- Called by empty.
DELETE FROM redrive_schedules
