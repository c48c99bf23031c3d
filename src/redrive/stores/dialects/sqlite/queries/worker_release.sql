-- Give back the jobs that a worker still holds, or those under these leases, with no attempt spent; return them.
-- Called by leave and give_back.
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'release',
    note = :note,
    -- A job that has not started keeps its place in the queue, and may still expire before its first start.
    scheduled_at = coalesce(:due, scheduled_at),
    started_at = CASE WHEN :due IS NULL AND started_at = claimed_at THEN NULL ELSE started_at END,
    attempt = attempt - 1,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL
WHERE state = 'running' AND worker_id = :worker_id
    AND (:leases IS NULL OR lease_id IN (SELECT value FROM json_each(:leases)))
RETURNING id, task, key, key_until
