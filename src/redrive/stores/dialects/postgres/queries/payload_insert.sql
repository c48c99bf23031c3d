-- Insert the arguments of jobs.
-- Called by enqueue.
-- transaction: last
INSERT INTO redrive_payloads (job_id, payload)
SELECT * FROM unnest(:job_id::bigint[], :payload::bytea[])
