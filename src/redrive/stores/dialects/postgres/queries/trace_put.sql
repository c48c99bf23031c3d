-- Keeps what links jobs to the traces of whoever watches, instead of what was kept before.
-- Called by enqueue and settle, where somebody traces.
INSERT INTO redrive_traces (job_id, trace)
SELECT * FROM unnest(:job_id::bigint[], :trace::text[])
ON CONFLICT (job_id) DO UPDATE SET trace = excluded.trace
