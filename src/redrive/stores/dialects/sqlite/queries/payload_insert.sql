-- Insert the arguments of jobs.
-- Called by enqueue.
-- many: pairs
INSERT INTO redrive_payloads (job_id, payload)
SELECT CAST(key AS INTEGER), CAST(value AS BLOB) FROM json_each(:pairs)
