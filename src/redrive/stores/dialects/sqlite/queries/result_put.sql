-- Write the results of jobs.
-- Called by settle; it replaces the result from before a redrive.
-- many: pairs
INSERT INTO redrive_results (job_id, result)
SELECT CAST(key AS INTEGER), CAST(value AS BLOB) FROM json_each(:pairs)
WHERE true -- without it SQLite parses ON as the beginning of a join
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result
