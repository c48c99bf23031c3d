-- Return the result of one job, if it has one.
-- Called by result.
SELECT result FROM redrive_results WHERE job_id = :job_id::bigint
