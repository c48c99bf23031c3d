-- Return the key behind which a search with a budget goes on; nothing if it reads all.
-- Called by search.
SELECT key FROM redrive_instances
WHERE machine = :machine::text AND key > :after::text
ORDER BY key
LIMIT 1 OFFSET :budget::bigint
