-- Return the event of an instance with a key.
-- Called by send.
SELECT
-- include move_columns.sql
FROM redrive_moves
WHERE machine = :machine::text AND key = :key::text AND event_key = :event_key::text
