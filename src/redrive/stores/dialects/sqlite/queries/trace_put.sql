-- Keeps what links a job to the traces of whoever watches, instead of what was kept before.
-- Called by enqueue and settle, where somebody traces.
INSERT INTO redrive_traces (job_id, trace) VALUES (:job_id, :trace)
ON CONFLICT (job_id) DO UPDATE SET trace = excluded.trace
