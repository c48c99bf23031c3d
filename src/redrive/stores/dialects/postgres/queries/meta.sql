-- Return the value of one key of this database's metadata.
-- Called by identify and schema.
-- transaction: none
SELECT value FROM redrive_meta WHERE key = :key::text
