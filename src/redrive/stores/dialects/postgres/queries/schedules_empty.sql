-- Delete all schedules, which the next worker declares again.
-- Called by empty.
DELETE FROM redrive_schedules
