-- Make a ready job due now, although it may have expired.
-- Called by retry.
UPDATE redrive_jobs SET
    scheduled_at = min(scheduled_at, :now), hold = NULL, unreadable_at = NULL,
    -- It runs although it has expired, because an operator demands it.
    expires_at = CASE WHEN expires_at > :now THEN expires_at END
WHERE id = :id AND state = 'ready' AND (scheduled_at > :now OR expires_at <= :now)
RETURNING id
