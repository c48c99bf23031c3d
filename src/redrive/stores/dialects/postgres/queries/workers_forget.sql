-- Delete workers that left long ago and hold no lease.
-- Called by forget_workers.
DELETE FROM redrive_workers AS worker
WHERE worker.stopped_at <= :before::timestamptz
    AND NOT EXISTS (SELECT FROM redrive_jobs WHERE state = 'running' AND worker_id = worker.id OFFSET 0)
