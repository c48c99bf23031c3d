-- Insert the history entry of each of these attempts whose lease is still current, and return these leases.
-- Called by settle, before settle_succeeded. A lease id belongs to one job only, so the two lists need no pairing.
INSERT INTO redrive_attempts (job_id, lease_id, number, worker_id, started_at, finished_at, outcome)
SELECT id, lease_id, attempt, worker_id, claimed_at, :now::timestamptz, 'succeeded'
FROM redrive_jobs
-- As in settle_succeeded: the planner must not use the index of running jobs.
WHERE id = ANY (:job_ids::bigint[]) AND lease_id = ANY (:lease_ids::bigint[]) AND state <> 'waiting'
ORDER BY id
FOR UPDATE
RETURNING lease_id
