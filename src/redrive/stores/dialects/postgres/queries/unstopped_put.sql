-- Insert records of handlers that still run after their attempts have ended; dead workers' do not count.
-- Called by settle, sweep, cancel and fire.
INSERT INTO redrive_unstopped (lease_id, job_id, queue, partition, worker_id)
SELECT given.lease_id, given.job_id, given.queue, given.partition, given.worker_id
FROM unnest(
    :lease_id::bigint[], :job_id::bigint[], :queue::text[], :partition::text[], :worker_id::bigint[]
) AS given (lease_id, job_id, queue, partition, worker_id)
JOIN redrive_workers AS worker ON worker.id = given.worker_id AND worker.stopped_at IS NULL
ORDER BY given.lease_id
ON CONFLICT DO NOTHING
