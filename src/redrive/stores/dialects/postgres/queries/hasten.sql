-- Make a ready job due now.
-- Called by retry.
UPDATE redrive_jobs SET scheduled_at = :now::timestamptz, hold = NULL, unreadable_at = NULL
WHERE id = :id::bigint AND state = 'ready' AND scheduled_at > :now
RETURNING id
