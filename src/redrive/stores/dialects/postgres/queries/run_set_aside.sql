-- Keep a run that is due or parked from being claimed until the end of its pause. A retry or a delay goes on.
-- Called by pause.
UPDATE redrive_jobs SET hold = 'paused', note = :note::text, scheduled_at = :until::timestamptz
WHERE id = :id::bigint AND state = 'ready' AND (hold IS NULL OR hold IN ('parked', 'paused'))
