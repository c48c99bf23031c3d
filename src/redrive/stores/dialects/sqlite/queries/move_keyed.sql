-- Return the event of an instance with a key.
-- Called by send.
SELECT
-- include move_columns.sql
FROM redrive_moves
WHERE machine = :machine AND key = :key AND event_key = :event_key
