-- Keeps the results of jobs.
-- Called by settle; replaces that of an earlier life of a redriven job.
INSERT INTO redrive_results (job_id, result)
SELECT CAST(key AS INTEGER), CAST(value AS BLOB) FROM json_each(:pairs)
WHERE true -- without it SQLite would read ON as the beginning of a join
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result
