-- Write the traces of jobs; each replaces the one before.
-- Called by enqueue and settle, if a tracer listens.
INSERT INTO redrive_traces (job_id, trace) VALUES (:job_id, :trace)
ON CONFLICT (job_id) DO UPDATE SET trace = excluded.trace
