-- Delete the events of instances.
-- Called by prune_completed.
DELETE FROM redrive_moves WHERE machine = :machine::text AND key = ANY (:keys::text[])
