-- Keeps the results of jobs.
-- Called by settle; replaces those of an earlier life of a redriven job.
INSERT INTO redrive_results (job_id, result)
SELECT * FROM unnest(:job_id::bigint[], :result::bytea[])
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result
