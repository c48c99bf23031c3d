-- Gives back what a worker still holds, or these leases of it; nothing is spent. Answers the jobs.
-- Called by leave and forsake.
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'release',
    note = :note,
    scheduled_at = :now,
    attempt = attempt - 1,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL
WHERE state = 'running' AND worker_id = :worker_id
    AND (:leases IS NULL OR lease_id IN (SELECT value FROM json_each(:leases)))
RETURNING id, task, key, key_until
