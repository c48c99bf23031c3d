-- The statements of operations/erasing.py. They read whole tables, which is rare and locks nothing.

-- name: erase_jobs
-- Return the jobs with a tag, a key or a partition, those of runs with an id, and those of instances and items with a key.
-- Only by what the jobs have themselves: an instance, an item or an event may be gone, and a unique key released.
-- postgres
SELECT job_id FROM redrive_tags WHERE tag = ANY (:tags::text[])
UNION
SELECT job_id FROM redrive_keys WHERE key = :word::text
UNION
SELECT job_id FROM redrive_runs WHERE id = :word
UNION
SELECT id FROM redrive_jobs
WHERE key = :word OR partition = ANY (:partitions::text[])
    OR (
        (origin LIKE 'machine:%' OR origin LIKE 'refresh:%') AND substr(origin, strpos(origin, '/') + 1) = :word
    )
-- sqlite
SELECT job_id FROM redrive_tags WHERE tag IN (SELECT value FROM json_each(:tags))
UNION
SELECT job_id FROM redrive_keys WHERE key = :word
UNION
SELECT job_id FROM redrive_runs WHERE id = :word
UNION
SELECT id FROM redrive_jobs
WHERE key = :word OR partition IN (SELECT value FROM json_each(:partitions))
    OR (
        (origin LIKE 'machine:%' OR origin LIKE 'refresh:%') AND substr(origin, instr(origin, '/') + 1) = :word
    )

-- name: erase_followers
-- Return the catch jobs of these jobs, and the runs that they have called, or that are forks of them, each with its origin.
-- both
SELECT id, parent_id AS of_id FROM redrive_jobs WHERE parent_id = ANY (:ids::bigint[])
UNION
SELECT job_id, parent_id FROM redrive_runs WHERE parent_id = ANY (:ids)
UNION
SELECT job_id, forked_from FROM redrive_runs WHERE forked_from = ANY (:ids)

-- name: erase_awaited
-- Return those of these jobs whose runs were called by a run that has not ended, with the job of that one.
-- both
SELECT run.job_id, parent.id FROM redrive_runs AS run
INNER JOIN redrive_jobs AS parent ON parent.id = run.parent_id
WHERE run.job_id = ANY (:ids::bigint[]) AND parent.state NOT IN ('succeeded', 'dead', 'cancelled')

-- name: erase_places
-- Return the instances, items, events and emitted values with a key or a name.
-- both
SELECT 'instance' AS kind, machine AS name, key AS part FROM redrive_instances
WHERE key = :word::text
UNION ALL
SELECT 'item', schedule, key FROM redrive_refreshes WHERE key = :word
UNION ALL
SELECT 'event', topic, CAST(id AS text) FROM redrive_events WHERE key = :word
UNION ALL
SELECT 'value', name, name FROM redrive_emits WHERE name = :word

-- name: erase_counts
-- Return how many rows of each kind belong to jobs.
-- both
SELECT 'runs' AS kind, count(*) AS number FROM redrive_runs WHERE job_id = ANY (:ids::bigint[])
UNION ALL
SELECT 'steps', count(*) FROM redrive_steps WHERE run_id = ANY (:ids)
UNION ALL
SELECT 'signals', count(*) FROM redrive_signals WHERE run_id = ANY (:ids)
UNION ALL
SELECT 'attempts', count(*) FROM redrive_attempts WHERE job_id = ANY (:ids)
UNION ALL
SELECT 'arguments', count(*) FROM redrive_payloads WHERE job_id = ANY (:ids)
UNION ALL
SELECT 'results', count(*) FROM redrive_results WHERE job_id = ANY (:ids)
UNION ALL
SELECT 'keys', count(*) FROM redrive_keys WHERE job_id = ANY (:ids)

-- name: erase_events
-- Delete events of a topic that all subscriptions have got, and return their ids.
-- postgres
DELETE FROM redrive_events
WHERE topic = :topic::text AND id = ANY (:ids::bigint[])
    AND xid < ALL (SELECT pg_snapshot_xmin(seen) FROM redrive_shards WHERE topic = :topic)
RETURNING id
-- sqlite
DELETE FROM redrive_events
WHERE topic = :topic AND id IN (SELECT value FROM json_each(:ids))
    AND id <= coalesce((SELECT min(CAST(seen AS INTEGER)) FROM redrive_shards WHERE topic = :topic), id)
RETURNING id

-- name: erase_values
-- Delete emitted values that every run has got.
-- both
DELETE FROM redrive_emits WHERE name = :word::text AND NOT pending RETURNING name

-- name: erase_answers
-- Return the answered requests of programs with a text in their key or in their answer.
-- One that has no answer yet may be carried out right now.
-- postgres
SELECT actor, key, answer FROM redrive_requests
WHERE answer IS NOT NULL
    AND (position(:word::text IN key) > 0 OR position(convert_to(:text::text, 'UTF8') IN answer) > 0)
-- sqlite
SELECT actor, key, answer FROM redrive_requests
WHERE answer IS NOT NULL AND (instr(key, :word) > 0 OR instr(answer, CAST(:text AS BLOB)) > 0)

-- name: erase_requests
-- Delete answered requests of programs.
-- postgres
DELETE FROM redrive_requests AS request
USING unnest(:actor::text[], :key::text[]) AS given (actor, key)
WHERE request.actor = given.actor AND request.key = given.key AND request.answer IS NOT NULL
-- sqlite
DELETE FROM redrive_requests WHERE actor = :actor AND key = :key AND answer IS NOT NULL

-- name: erase_starts
-- Take a partition out of the starts that rates count; the rate of the whole queue still counts them.
-- both
UPDATE redrive_starts SET partition = NULL WHERE partition = ANY (:partitions::text[])

-- name: erase_texts
-- Return the entries of the audit log, the ended bulk operations and the error groups with a text.
-- both
SELECT 'audit' AS kind, CAST(id AS text) AS id, details AS first, about AS second FROM redrive_audit
WHERE replace(details, :text::text, '') <> details OR replace(about, :word::text, '') <> about
UNION ALL
SELECT 'operation', CAST(id AS text), wanted, options FROM redrive_operations
WHERE state <> 'running' AND (replace(wanted, :text, '') <> wanted OR replace(options, :text, '') <> options)
UNION ALL
SELECT 'error group', fingerprint, title, NULL FROM redrive_errors WHERE replace(title, :word, '') <> title

-- name: erase_audit
-- Write entries of the audit log anew.
-- postgres
UPDATE redrive_audit AS entry SET details = given.first, about = given.second
FROM unnest(:id::bigint[], :first::text[], :second::text[]) AS given (id, first, second)
WHERE entry.id = given.id
-- sqlite
UPDATE redrive_audit SET details = :first, about = :second WHERE id = :id

-- name: erase_operations
-- Write the filters and options of bulk operations anew.
-- postgres
UPDATE redrive_operations AS operation SET wanted = given.first, options = given.second
FROM unnest(:id::bigint[], :first::text[], :second::text[]) AS given (id, first, second)
WHERE operation.id = given.id
-- sqlite
UPDATE redrive_operations SET wanted = :first, options = :second WHERE id = :id

-- name: erase_errors
-- Write the titles of error groups anew.
-- postgres
UPDATE redrive_errors AS error SET title = given.first
FROM unnest(:id::text[], :first::text[]) AS given (id, first)
WHERE error.fingerprint = given.id
-- sqlite
UPDATE redrive_errors SET title = :first WHERE fingerprint = :id
