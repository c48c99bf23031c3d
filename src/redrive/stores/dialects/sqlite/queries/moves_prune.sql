-- Delete the events of instances.
-- Called by prune_completed.
DELETE FROM redrive_moves WHERE machine = :machine AND key IN (SELECT value FROM json_each(:keys))
