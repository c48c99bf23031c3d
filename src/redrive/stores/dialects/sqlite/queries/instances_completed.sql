-- Lock completed instances that entered their state long enough ago, and return their keys.
-- Called by prune_completed.
SELECT key FROM redrive_instances
WHERE machine = :machine AND status = 'completed' AND entered_at <= :before AND job_id IS NULL
ORDER BY entered_at
LIMIT :count
