-- Delete the events of an instance.
-- Called by delete.
DELETE FROM redrive_moves WHERE machine = :machine AND key = :key
