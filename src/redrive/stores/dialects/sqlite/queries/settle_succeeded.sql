-- Finish each of these jobs whose lease is still current.
-- Called by settle for the successes of a batch.
UPDATE redrive_jobs SET
    state = 'succeeded',
    finished_at = :now,
    crashes = 0,
    hold = NULL,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL,
    note = NULL,
    reason = NULL,
    error = NULL
WHERE id IN (SELECT value FROM json_each(:job_ids))
    AND lease_id IN (SELECT value FROM json_each(:lease_ids))
    AND state = 'running'
