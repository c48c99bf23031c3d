-- Delete an instance.
-- Called by delete.
DELETE FROM redrive_instances WHERE machine = :machine AND key = :key
