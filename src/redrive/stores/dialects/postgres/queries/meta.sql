-- Answers what this database says of itself under one key.
-- Called by identify.
SELECT value FROM redrive_meta WHERE key = :key::text
