-- Answers what the handler of one job last said of itself, if it has said anything.
-- Called by progress.
SELECT job_id, lease_id, details, at FROM redrive_progress WHERE job_id = :job_id::bigint
