-- Take keys for jobs, and return the jobs that got theirs; a key that another job holds is not written.
-- Called by enqueue, and when a job becomes ready again; in the order of the keys, so that two calls cannot deadlock.
INSERT INTO redrive_keys (kind, scope, key, job_id)
SELECT kind, scope, key, job_id
FROM unnest(:kind::text[], :scope::text[], :key::text[], :job_id::bigint[]) AS given (kind, scope, key, job_id)
ORDER BY kind, scope COLLATE "C", key COLLATE "C", job_id
ON CONFLICT DO NOTHING
RETURNING job_id
