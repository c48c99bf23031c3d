-- Delete one schedule. Its occurrences stay until they are pruned, so that none is started twice.
-- Called by delete.
DELETE FROM redrive_schedules
WHERE name = :name
