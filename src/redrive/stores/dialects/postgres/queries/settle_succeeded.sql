-- Finish each of these jobs if its lease is still current, and return these leases.
-- Called by settle for the successes of a batch. A lease id belongs to one job only, so the two lists need no pairing.
UPDATE redrive_jobs SET
    state = 'succeeded',
    finished_at = :now::timestamptz,
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
-- A job with a lease runs or waits. For state = 'running' the planner might scan the index of running jobs, in which the
-- entries of ended jobs stay as long as another session holds a snapshot.
WHERE id = ANY (:job_ids::bigint[]) AND lease_id = ANY (:lease_ids::bigint[]) AND state <> 'waiting'
RETURNING success_lease_id
