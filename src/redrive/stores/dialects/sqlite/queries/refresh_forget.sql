-- Delete an item, and return its key.
-- Called by untrack.
DELETE FROM redrive_refreshes WHERE schedule = :schedule AND key = :key
RETURNING key
