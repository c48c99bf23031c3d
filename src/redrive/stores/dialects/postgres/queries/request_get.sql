-- Return a request by its key.
-- Called by begin.
SELECT digest, answer FROM redrive_requests WHERE actor = :actor::text AND key = :key::text
