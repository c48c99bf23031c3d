-- Return the first waiting event of each of these instances; the event of a failure comes before others.
-- Called by take_turns.
SELECT
    move.id, move.machine, move.key, move.source, move.status, move.from_state, move.to_state, move.event,
    move.event_key, move.digest, move.payload, move.sent_at, move.finished_at, move.attempts, move.error,
    move.failed_to, move.actor
FROM unnest(:machine::text[], :key::text[]) AS given (machine, key)
CROSS JOIN LATERAL (
    SELECT * FROM redrive_moves AS waiting
    WHERE waiting.machine = given.machine AND waiting.key = given.key AND waiting.status = 'queued'
    ORDER BY waiting.source <> 'failed_to', waiting.id
    LIMIT 1
) AS move
