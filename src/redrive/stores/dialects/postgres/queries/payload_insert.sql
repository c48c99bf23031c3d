-- Keeps the arguments of jobs.
-- Called by enqueue.
INSERT INTO redrive_payloads (job_id, payload)
SELECT * FROM unnest(:job_id::bigint[], :payload::bytea[])
