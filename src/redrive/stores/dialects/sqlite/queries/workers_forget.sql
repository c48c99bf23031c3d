-- Delete workers that left long ago and hold no lease.
-- Called by forget_workers.
DELETE FROM redrive_workers
WHERE stopped_at <= :before
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs WHERE state = 'running' AND worker_id = redrive_workers.id)
