-- Return the key of an instance, if it exists. The transaction is the only writer, so nothing deletes the instance.
-- Called by send with busy="queue".
SELECT key FROM redrive_instances WHERE machine = :machine AND key = :key
