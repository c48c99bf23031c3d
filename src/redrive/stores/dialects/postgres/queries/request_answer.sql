-- Store the answer to a request.
-- Called by answered.
UPDATE redrive_requests SET answer = :answer::bytea WHERE actor = :actor::text AND key = :key::text
