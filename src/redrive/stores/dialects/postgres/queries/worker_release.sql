-- Gives back what a worker still holds, or these leases of it; nothing is spent. Answers the jobs.
-- Called by leave and forsake.
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'release',
    note = :note::text,
    scheduled_at = :now::timestamptz,
    attempt = attempt - 1,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL
WHERE state = 'running' AND worker_id = :worker_id::bigint
    AND (:leases::bigint[] IS NULL OR lease_id = ANY (:leases))
RETURNING id, task, key, key_until
