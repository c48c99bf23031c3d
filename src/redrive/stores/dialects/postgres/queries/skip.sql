-- Lets those pass that a dead job holds up, and answers the job if it was holding them up.
-- Called by skip.
UPDATE redrive_jobs SET skipped_at = :now::timestamptz
WHERE id = :id::bigint AND state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL
RETURNING id
