-- Takes keys for jobs and answers the jobs that got theirs; where another one holds a key, nothing is written.
-- Called by enqueue, and where a job becomes ready again; in one order, so that two of them never wait for each other.
INSERT INTO redrive_keys (kind, scope, key, job_id)
SELECT kind, scope, key, job_id
FROM unnest(:kind::text[], :scope::text[], :key::text[], :job_id::bigint[]) AS given (kind, scope, key, job_id)
ORDER BY kind, scope COLLATE "C", key COLLATE "C", job_id
ON CONFLICT DO NOTHING
RETURNING job_id
