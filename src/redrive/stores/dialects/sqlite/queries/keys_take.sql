-- Takes a key for a job and answers the job if it got it; where another one holds the key, nothing is written.
-- Called by enqueue, and where a job becomes ready again.
INSERT INTO redrive_keys (kind, scope, key, job_id) VALUES (:kind, :scope, :key, :job_id)
ON CONFLICT DO NOTHING
RETURNING job_id
