-- Write the traces of jobs; each replaces the one before.
-- Called by enqueue and settle, if a tracer listens.
-- transaction: last
INSERT INTO redrive_traces (job_id, trace)
SELECT * FROM unnest(:job_id::bigint[], :trace::text[])
ON CONFLICT (job_id) DO UPDATE SET trace = excluded.trace
