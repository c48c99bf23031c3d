-- Return the first waiting event of each of these instances; the event of a failure comes before others.
-- Called by take_turns.
-- many: rows
SELECT
    id, machine, key, source, status, from_state, to_state, event, event_key, digest, payload, sent_at, finished_at,
    attempts, error, failed_to, actor
FROM redrive_moves
WHERE machine = :machine AND key = :key AND status = 'queued'
ORDER BY source <> 'failed_to', id
LIMIT 1
