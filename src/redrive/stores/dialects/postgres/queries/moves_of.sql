-- Return the events of an instance, the latest first.
-- Called by history.
SELECT
-- include move_columns.sql
FROM redrive_moves
WHERE machine = :machine::text AND key = :key::text AND id < :before::bigint
ORDER BY id DESC
LIMIT :count::bigint
