-- Return waiting events that their instances do not show yet, and lock these instances, without locked ones.
-- Called by take_turns.
SELECT move.id, move.key, move.source
FROM redrive_moves AS move
CROSS JOIN LATERAL (
    SELECT FROM redrive_instances WHERE machine = move.machine AND key = move.key FOR NO KEY UPDATE SKIP LOCKED
) AS instance
WHERE move.status = 'queued' AND NOT move.noted AND move.machine = :machine::text
ORDER BY move.id
LIMIT :count::bigint
