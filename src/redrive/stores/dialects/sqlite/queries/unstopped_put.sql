-- Insert records of handlers that still run after their attempts have ended; dead workers' do not count.
-- Called by settle, sweep, cancel and fire.
INSERT INTO redrive_unstopped (lease_id, job_id, queue, partition, worker_id)
SELECT :lease_id, :job_id, :queue, :partition, :worker_id
WHERE EXISTS (SELECT 1 FROM redrive_workers WHERE id = :worker_id AND stopped_at IS NULL)
ON CONFLICT DO NOTHING
