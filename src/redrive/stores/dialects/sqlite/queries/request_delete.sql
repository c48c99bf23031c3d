-- Delete the key of a request.
-- Called by forget.
DELETE FROM redrive_requests WHERE actor = :actor AND key = :key
