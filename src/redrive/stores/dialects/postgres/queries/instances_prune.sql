-- Delete instances.
-- Called by prune_completed.
DELETE FROM redrive_instances WHERE machine = :machine::text AND key = ANY (:keys::text[])
