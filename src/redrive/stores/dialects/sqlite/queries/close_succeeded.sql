-- Insert the history entry of each of these attempts whose lease is still current, and return these leases.
-- Called by settle, before settle_succeeded. A lease id belongs to one job only, so the two lists need no pairing.
INSERT INTO redrive_attempts (job_id, lease_id, number, worker_id, started_at, finished_at, outcome)
SELECT id, lease_id, attempt, worker_id, claimed_at, :now, 'succeeded'
FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:job_ids))
    AND lease_id IN (SELECT value FROM json_each(:lease_ids))
    AND state = 'running'
RETURNING lease_id
