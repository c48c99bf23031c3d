-- Return the first two waiting events of each of these instances, the first one first; with a source only its events.
-- Called by take_turns and by the actions of operators on failed transitions.
SELECT
    move.id, move.machine, move.key, move.source, move.status, move.from_state, move.to_state, move.event,
    move.event_key, move.digest, move.payload, move.sent_at, move.finished_at, move.attempts, move.error,
    move.failed_to, move.actor
FROM unnest(:machine::text[], :key::text[], :source::text[]) AS given (machine, key, source)
CROSS JOIN LATERAL (
    SELECT * FROM redrive_moves AS waiting
    WHERE waiting.machine = given.machine AND waiting.key = given.key AND waiting.status = 'queued'
        AND (given.source IS NULL OR waiting.source = given.source)
    ORDER BY waiting.id
    LIMIT 2
) AS move
ORDER BY move.id
