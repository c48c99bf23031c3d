-- Return the running operation with the batch that is due first.
-- Called by look, every few seconds in each worker.
SELECT id, next_at FROM redrive_operations WHERE state = 'running' ORDER BY next_at LIMIT 1
