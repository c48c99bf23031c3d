-- Take keys for jobs, and return the jobs that got theirs; a key that another job holds is not written.
-- Called by enqueue, and when a job becomes ready again; in the order of the keys, so that two calls cannot deadlock.
-- many: rows
INSERT INTO redrive_keys (kind, scope, key, job_id) VALUES (:kind, :scope, :key, :job_id)
ON CONFLICT DO NOTHING
RETURNING job_id
