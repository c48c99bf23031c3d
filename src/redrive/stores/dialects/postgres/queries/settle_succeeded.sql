-- Finishes each of these jobs whose lease is still current.
-- Called by settle for the successes of a flush.
UPDATE redrive_jobs SET
    state = 'succeeded',
    finished_at = :now::timestamptz,
    crashes = 0,
    hold = NULL,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL,
    note = NULL,
    reason = NULL,
    error = NULL
WHERE id = ANY (:job_ids::bigint[]) AND lease_id = ANY (:lease_ids::bigint[]) AND state = 'running'
