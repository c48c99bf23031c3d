-- Unblock the line that a dead job blocks, and return the job if it did.
-- Called by skip.
UPDATE redrive_jobs SET skipped_at = :now::timestamptz
WHERE id = :id::bigint AND state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL
RETURNING id
