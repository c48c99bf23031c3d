-- Delete instances.
-- Called by prune_completed.
DELETE FROM redrive_instances WHERE machine = :machine AND key IN (SELECT value FROM json_each(:keys))
