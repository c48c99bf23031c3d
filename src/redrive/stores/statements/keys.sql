-- The statements of operations/keys.py.

-- name: keys_find
-- Return the holders of these keys. A job of the same transaction may not be inserted yet.
-- For keys that could not be taken, and for dry runs.
-- postgres
SELECT held.scope, held.key, held.job_id, job.task, job.state, coalesce(job.latest_at IS NOT NULL, false) AS debounced
FROM (SELECT DISTINCT scope FROM unnest(:scopes::text[]) AS scope) AS place
CROSS JOIN (SELECT DISTINCT key FROM unnest(:keys::text[]) AS key) AS wanted
CROSS JOIN LATERAL (
    SELECT scope, key, job_id FROM redrive_keys
    WHERE kind = :kind::text AND scope = place.scope AND key = wanted.key
    OFFSET 0
) AS held
LEFT JOIN LATERAL (SELECT task, state, latest_at FROM redrive_jobs WHERE id = held.job_id OFFSET 0) AS job ON true
-- sqlite
SELECT held.scope, held.key, held.job_id, job.task, job.state, coalesce(job.latest_at IS NOT NULL, 0) AS debounced
FROM redrive_keys AS held
LEFT JOIN redrive_jobs AS job ON job.id = held.job_id
WHERE held.kind = :kind
    AND held.scope IN (SELECT value FROM json_each(:scopes))
    AND held.key IN (SELECT value FROM json_each(:keys))

-- name: keys_take
-- Take keys for jobs, and return the jobs that got theirs; a key that another job holds is not written.
-- In the order of the keys, so that two calls cannot deadlock.
-- many: rows
-- postgres
INSERT INTO redrive_keys (kind, scope, key, job_id)
SELECT kind, scope, key, job_id
FROM unnest(:kind::text[], :scope::text[], :key::text[], :job_id::bigint[]) AS given (kind, scope, key, job_id)
ORDER BY kind, scope COLLATE "C", key COLLATE "C", job_id
ON CONFLICT DO NOTHING
RETURNING job_id
-- sqlite
INSERT INTO redrive_keys (kind, scope, key, job_id) VALUES (:kind, :scope, :key, :job_id)
ON CONFLICT DO NOTHING
RETURNING job_id

-- name: keys_drop
-- Release the unique keys of these jobs; idempotency keys stay until the job is pruned.
-- A job has started, ended or been superseded.
-- postgres
DELETE FROM redrive_keys
-- As in settle_succeeded: the planner must not use the index of keys by their kind.
WHERE kind <> 'idempotency' AND job_id = ANY (:job_ids::bigint[])
-- sqlite
DELETE FROM redrive_keys WHERE kind = 'unique' AND job_id IN (SELECT value FROM json_each(:job_ids))

-- name: supersede
-- Close ready jobs with keys that other jobs hold.
-- A job becomes ready again, or a debounced job has started.
-- postgres
UPDATE redrive_jobs AS job SET
    state = 'cancelled',
    hold = NULL,
    reason = given.reason,
    note = given.note,
    finished_at = given.now
FROM unnest(:id::bigint[], :reason::text[], :note::text[], :now::timestamptz[]) AS given (id, reason, note, now)
WHERE job.id = ANY (:id) AND job.id = given.id AND job.state = 'ready'
-- sqlite
UPDATE redrive_jobs SET
    state = 'cancelled',
    hold = NULL,
    reason = :reason,
    note = :note,
    finished_at = :now
WHERE id = :id AND state = 'ready'

-- name: keys_move
-- Move the keys of one job to another.
-- For an idempotency key of a request that another job serves.
-- both
UPDATE redrive_keys SET job_id = :to_id::bigint WHERE job_id = :from_id::bigint

-- name: bounce
-- Postpone a debounced job that has not started, at most to its latest start, and return it.
-- A job that an operator made due stays due.
-- postgres
UPDATE redrive_jobs SET
    scheduled_at = CASE
        WHEN hold = 'debounce' THEN least(:scheduled_at::timestamptz, latest_at) ELSE scheduled_at
    END
WHERE id = :id::bigint AND state = 'ready' AND latest_at IS NOT NULL AND started_at IS NULL
RETURNING id
-- sqlite
UPDATE redrive_jobs SET
    scheduled_at = CASE WHEN hold = 'debounce' THEN min(:scheduled_at, latest_at) ELSE scheduled_at END
WHERE id = :id AND state = 'ready' AND latest_at IS NOT NULL AND started_at IS NULL
RETURNING id

-- name: payload_put
-- Replace the arguments of one job.
-- For a debounced job that exists.
-- both
UPDATE redrive_payloads SET payload = :payload::bytea WHERE job_id = :job_id::bigint

-- name: tags_drop
-- Delete the tags of one job.
-- For a debounced job that exists, before those of the latest call.
-- both
DELETE FROM redrive_tags WHERE job_id = :job_id::bigint
