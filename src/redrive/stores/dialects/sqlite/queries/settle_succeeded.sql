-- Finish each of these jobs if its lease is still current, and return these leases.
-- Called by settle for the successes of a batch. A lease id belongs to one job only, so the two lists need no pairing.
UPDATE redrive_jobs SET
    state = 'succeeded',
    finished_at = :now,
    crashes = 0,
    hold = NULL,
    slot = NULL,
    success_lease_id = lease_id,
    success_worker_id = worker_id,
    lease_id = NULL,
    worker_id = NULL,
    note = NULL,
    fingerprint = NULL,
    reason = NULL,
    error = NULL
WHERE id IN (SELECT value FROM json_each(:job_ids))
    AND lease_id IN (SELECT value FROM json_each(:lease_ids))
    AND state = 'running'
RETURNING success_lease_id
