-- Return the id of the running operation that is equal to a new one.
-- Called by start.
SELECT id FROM redrive_operations WHERE digest = :digest::text AND state = 'running'
