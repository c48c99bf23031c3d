-- Return those of these instances that have waiting events.
-- Called by prune_completed.
SELECT DISTINCT key FROM redrive_moves
WHERE machine = :machine AND key IN (SELECT value FROM json_each(:keys)) AND status = 'queued'
