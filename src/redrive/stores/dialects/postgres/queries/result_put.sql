-- Write the results of jobs.
-- Called by settle; it replaces the result from before a redrive.
INSERT INTO redrive_results (job_id, result)
SELECT * FROM unnest(:job_id::bigint[], :result::bytea[])
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result
