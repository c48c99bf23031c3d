-- Return the leases that a worker holds.
-- Called by beat and held, so that the worker stops the attempts that it has lost.
-- transaction: none
SELECT lease_id FROM redrive_jobs WHERE state = 'running' AND worker_id = :worker_id::bigint
