-- End a delivery as dead, with its last error, and let the events behind it pass.
-- Called by skip.
UPDATE redrive_jobs SET
    state = 'dead', hold = NULL, slot = NULL, lease_id = NULL, worker_id = NULL, finished_at = :now,
    skipped_at = :now, note = :note, reason = coalesce(reason, 'SKIPPED'), error = coalesce(error, :note)
WHERE id = :id AND state IN ('ready', 'running', 'waiting')
RETURNING id
