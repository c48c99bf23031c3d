-- Return the events of an instance, the latest first.
-- Called by history.
SELECT
-- include move_columns.sql
FROM redrive_moves
WHERE machine = :machine AND key = :key AND id < :before
ORDER BY id DESC
LIMIT :count
