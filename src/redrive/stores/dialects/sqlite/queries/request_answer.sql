-- Store the answer to a request.
-- Called by answered.
UPDATE redrive_requests SET answer = :answer WHERE actor = :actor AND key = :key
