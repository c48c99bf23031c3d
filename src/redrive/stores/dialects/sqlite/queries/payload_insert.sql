-- Keeps the arguments of one job.
-- Called by enqueue.
INSERT INTO redrive_payloads (job_id, payload) VALUES (:job_id, :payload)
