-- Return those of these instances that have waiting events.
-- Called by prune_completed.
SELECT DISTINCT key FROM redrive_moves
WHERE machine = :machine::text AND key = ANY (:keys::text[]) AND status = 'queued'
