-- Return waiting events that their instances do not show yet.
-- Called by take_turns.
SELECT move.id, move.key, move.source
FROM redrive_moves AS move
CROSS JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
WHERE move.status = 'queued' AND move.noted = 0 AND move.machine = :machine
ORDER BY move.id
LIMIT :count
