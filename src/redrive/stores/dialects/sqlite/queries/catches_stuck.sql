-- Return the catch jobs that have failed many times and have not ended, each with its last error.
-- Called by examine.
SELECT id, task, parent_id, failures, error FROM redrive_jobs
WHERE parent_id IS NOT NULL AND state IN ('ready', 'running', 'waiting') AND failures >= :failures
ORDER BY parent_id
LIMIT :count
