-- Keeps the result of one job.
-- Called by settle; replaces that of an earlier life of a redriven job.
INSERT INTO redrive_results (job_id, result) VALUES (:job_id, :result)
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result
