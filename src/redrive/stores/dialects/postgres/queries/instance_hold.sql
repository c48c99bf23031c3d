-- Keep an instance from being deleted until the transaction ends; return its key, if it exists.
-- Called by send with busy="queue". Other transactions can still read, move and lock it.
SELECT key FROM redrive_instances WHERE machine = :machine::text AND key = :key::text FOR KEY SHARE
