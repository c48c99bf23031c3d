-- Return the event of an instance with a key.
-- Called by send.
SELECT
    id, machine, key, source, status, from_state, to_state, event, event_key, digest, payload, sent_at, finished_at,
    attempts, error, failed_to, actor
FROM redrive_moves
WHERE machine = :machine::text AND key = :key::text AND event_key = :event_key::text
