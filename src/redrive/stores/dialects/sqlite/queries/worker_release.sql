-- Gives back what a leaving worker still holds; nothing is spent. Answers the jobs.
-- Called by leave.
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'release',
    note = :note,
    scheduled_at = :now,
    attempt = attempt - 1,
    lease_id = NULL,
    worker_id = NULL
WHERE state = 'running' AND worker_id = :worker_id
RETURNING id
