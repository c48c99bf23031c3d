-- Return the events of an instance, the latest first.
-- Called by history.
SELECT
    id, machine, key, source, status, from_state, to_state, event, event_key, digest, payload, sent_at, finished_at,
    attempts, error, failed_to, actor
FROM redrive_moves
WHERE machine = :machine::text AND key = :key::text AND id < :before::bigint
ORDER BY id DESC
LIMIT :count::bigint
