-- Return waiting events that their instances do not show yet, and lock these instances, without locked ones.
-- Called by take_turns.
SELECT move.id, move.key, move.source
FROM redrive_moves AS move
JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
WHERE move.status = 'queued' AND NOT move.noted AND move.machine = :machine::text
ORDER BY move.id
LIMIT :count::bigint
FOR NO KEY UPDATE OF instance SKIP LOCKED
