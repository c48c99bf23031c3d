-- Return the first two waiting events of each of these instances, the first one first; with a source only its events.
-- Called by take_turns and by the actions of operators on failed transitions.
-- many: rows
SELECT
-- include move_columns.sql
FROM redrive_moves
WHERE machine = :machine AND key = :key AND status = 'queued' AND (:source IS NULL OR source = :source)
ORDER BY id
LIMIT 2
