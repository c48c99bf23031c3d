-- Delete an instance.
-- Called by delete.
DELETE FROM redrive_instances WHERE machine = :machine::text AND key = :key::text
