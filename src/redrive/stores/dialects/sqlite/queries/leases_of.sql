-- Return the leases that a worker holds, and what operators ask of those that are runs.
-- Called by beat, look and held, so that the worker stops the attempts that it has lost, and interrupts steps.
SELECT lease_id, CASE WHEN origin LIKE 'run:%' THEN (
    SELECT CASE WHEN cancel_at IS NOT NULL THEN 'cancel' WHEN paused_at IS NOT NULL THEN 'pause' END
    FROM redrive_runs AS run
    WHERE run.job_id = job.id
) END AS asked
FROM redrive_jobs AS job
WHERE state = 'running' AND worker_id = :worker_id
