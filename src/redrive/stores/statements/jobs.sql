-- The statements of operations/jobs.py.

-- name: gate
-- Take ids for jobs; return their blocks, the instant, and one of these queues that is ordered, if there is one.
-- For the queues of the jobs that have no partition.
-- transaction: none
-- postgres
WITH taken AS MATERIALIZED (
    SELECT min(number) AS first, max(number) AS last, array_agg(number) AS numbers
    FROM (SELECT nextval('redrive_job_ids') AS number FROM generate_series(1, :count::bigint)) AS single
)
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (SELECT min(name) FROM redrive_queues WHERE name = ANY (:queues::text[]) AND ordered) AS ordered,
    block.first,
    block.last
FROM redrive_clock AS clock
CROSS JOIN taken
CROSS JOIN LATERAL (
    SELECT taken.first, taken.last WHERE taken.last - taken.first + 1 = :count
    UNION ALL
    SELECT number, number FROM unnest(taken.numbers) AS number WHERE taken.last - taken.first + 1 <> :count
) AS block
-- sqlite
UPDATE redrive_sequences SET value = value + :count
WHERE name = 'job'
RETURNING
    coalesce(:now, (SELECT now FROM redrive_clock)) AS now,
    (
        SELECT min(name) FROM redrive_queues
        WHERE name IN (SELECT value FROM json_each(:queues)) AND ordered
    ) AS ordered,
    value - :count + 1 AS first,
    value AS last

-- fragment: enqueue_policy
-- Insert the text of a policy under its digest, unless there is a row that is not retired.
-- sqlite
INSERT INTO redrive_policies (digest, document) VALUES (:policy, :document)
ON CONFLICT (digest) DO UPDATE SET retired_at = NULL WHERE retired_at IS NOT NULL

-- fragment: enqueue_job
-- Insert the job of enqueue, under the next number; no row if it is refused.
-- sqlite
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, policy, partition, enqueued_at, scheduled_at, timeout_for, salt
)
SELECT value + 1, :task, :queue, :priority, 'ready', :policy, :partition, :now, :now, :timeout_for, :salt
FROM redrive_sequences
WHERE name = 'job'
    AND (:partition IS NOT NULL OR NOT EXISTS (SELECT 1 FROM redrive_queues WHERE name = :queue AND ordered))

-- fragment: enqueue_payload
-- Insert the arguments of the job with the next number, if there is one.
-- sqlite
INSERT INTO redrive_payloads (job_id, payload)
SELECT job.id, :payload
FROM redrive_sequences AS sequence
JOIN redrive_jobs AS job ON job.id = sequence.value + 1
WHERE sequence.name = 'job'

-- name: enqueue
-- Insert one job without keys that is due at once, and return its id and the instant; no row if it is refused.
-- For most jobs.
-- transaction: last
-- first: enqueue_policy
-- first: enqueue_job
-- first: enqueue_payload
-- postgres
WITH new AS MATERIALIZED (
    -- Refused are a job without partition of an ordered queue, and any job on another database than that with the id
    -- :uid. No workers are notified if :channel is NULL.
    SELECT nextval('redrive_job_ids') AS id, coalesce(:now::timestamptz, clock.now) AS now
    FROM redrive_clock AS clock
    WHERE (
        :partition::text IS NOT NULL
        OR NOT EXISTS (SELECT FROM redrive_queues WHERE name = :queue::text AND ordered)
    ) AND (:uid::text IS NULL OR EXISTS (SELECT FROM redrive_meta WHERE key = 'uid' AND value = :uid))
),
policy AS (
    INSERT INTO redrive_policies (digest, document)
    SELECT :policy::text, :document::text
    FROM new
    WHERE NOT EXISTS (
        SELECT FROM redrive_policies AS known WHERE known.digest = :policy AND known.retired_at IS NULL
    )
),
argument AS (
    INSERT INTO redrive_payloads (job_id, payload) SELECT id, :payload::bytea FROM new
),
job AS (
    INSERT INTO redrive_jobs (
        id, task, queue, priority, state, policy, partition, enqueued_at, scheduled_at, timeout_for, salt
    )
    SELECT
        id, :task::text, :queue, :priority::bigint, 'ready', :policy, :partition, now, now, :timeout_for::interval,
        :salt::bigint
    FROM new
)
SELECT id, now, CASE WHEN :channel::text IS NOT NULL THEN pg_notify(:channel, '') END AS notified FROM new
-- sqlite
UPDATE redrive_sequences SET value = value + 1
WHERE name = 'job' AND EXISTS (SELECT 1 FROM redrive_jobs WHERE id = value + 1)
RETURNING value AS id, :now AS now

-- fragment: enqueue_job_full
-- Insert the job of enqueue_full, under the next number; no row if it is refused.
-- sqlite
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, expires_at, timeout_for, salt
)
SELECT
    value + 1, :task, :queue, :priority, 'ready',
    CASE WHEN coalesce(:due_at, :now + :delay) > :now THEN 'delay' END,
    :policy, :partition, :now, max(:now, coalesce(:due_at, :now + :delay)), coalesce(:expires_at, :now + :expires_for),
    :timeout_for, :salt
FROM redrive_sequences
WHERE name = 'job'
    AND (:partition IS NOT NULL OR NOT EXISTS (SELECT 1 FROM redrive_queues WHERE name = :queue AND ordered))

-- fragment: enqueue_tags
-- Insert the tags of the job with the next number, if there is one.
-- sqlite
INSERT INTO redrive_tags (tag, job_id)
SELECT tag.value, job.id
FROM redrive_sequences AS sequence
JOIN redrive_jobs AS job ON job.id = sequence.value + 1
CROSS JOIN json_each(:tags) AS tag
WHERE sequence.name = 'job'

-- fragment: enqueue_trace
-- Insert the trace of the job with the next number, if there is one.
-- sqlite
INSERT INTO redrive_traces (job_id, trace)
SELECT job.id, :trace
FROM redrive_sequences AS sequence
JOIN redrive_jobs AS job ON job.id = sequence.value + 1
WHERE sequence.name = 'job' AND :trace IS NOT NULL

-- name: enqueue_full
-- Insert one job without keys, with all of its options, and return its id and the instant; no row if it is refused.
-- For a job with a due time, an expiry, tags or a trace.
-- transaction: last
-- first: enqueue_policy
-- first: enqueue_job_full
-- first: enqueue_payload
-- first: enqueue_tags
-- first: enqueue_trace
-- postgres
WITH new AS MATERIALIZED (
    SELECT
        nextval('redrive_job_ids') AS id,
        at.now,
        CASE WHEN :due_at::timestamptz IS NULL THEN at.now + :delay::interval ELSE greatest(at.now, :due_at) END AS due_at
    FROM (SELECT coalesce(:now::timestamptz, clock.now) AS now FROM redrive_clock AS clock OFFSET 0) AS at
    WHERE (
        :partition::text IS NOT NULL
        OR NOT EXISTS (SELECT FROM redrive_queues WHERE name = :queue::text AND ordered)
    ) AND (:uid::text IS NULL OR EXISTS (SELECT FROM redrive_meta WHERE key = 'uid' AND value = :uid))
),
policy AS (
    INSERT INTO redrive_policies (digest, document)
    SELECT :policy::text, :document::text
    FROM new
    WHERE NOT EXISTS (
        SELECT FROM redrive_policies AS known WHERE known.digest = :policy AND known.retired_at IS NULL
    )
),
argument AS (
    INSERT INTO redrive_payloads (job_id, payload) SELECT id, :payload::bytea FROM new
),
tag AS (
    INSERT INTO redrive_tags (tag, job_id) SELECT tag, id FROM new CROSS JOIN unnest(:tags::text[]) AS tag
),
trace AS (
    INSERT INTO redrive_traces (job_id, trace) SELECT id, :trace::text FROM new WHERE :trace IS NOT NULL
),
job AS (
    INSERT INTO redrive_jobs (
        id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, expires_at, timeout_for,
        salt
    )
    SELECT
        id, :task::text, :queue, :priority::bigint, 'ready', CASE WHEN due_at > now THEN 'delay' END, :policy,
        :partition, now, due_at, coalesce(:expires_at::timestamptz, now + :expires_for::interval),
        :timeout_for::interval, :salt::bigint
    FROM new
)
SELECT id, now, CASE WHEN :channel::text IS NOT NULL THEN pg_notify(:channel, '') END AS notified FROM new
-- sqlite
UPDATE redrive_sequences SET value = value + 1
WHERE name = 'job' AND EXISTS (SELECT 1 FROM redrive_jobs WHERE id = value + 1)
RETURNING value AS id, :now AS now

-- name: take
-- Take numbers that are never handed out again, and return them in blocks.
-- For catch jobs (job) and claims (lease; PostgreSQL takes leases in the claim).
-- postgres
WITH taken AS MATERIALIZED (
    SELECT min(number) AS first, max(number) AS last, array_agg(number) AS numbers
    FROM (
        SELECT nextval(CASE :name::text
            WHEN 'job' THEN 'redrive_job_ids'::regclass
            WHEN 'lease' THEN 'redrive_lease_ids'::regclass
        END) AS number
        FROM generate_series(1, :count::bigint)
    ) AS single
)
SELECT first, last FROM taken WHERE last - first + 1 = :count
UNION ALL
SELECT number, number FROM taken CROSS JOIN unnest(numbers) AS number WHERE last - first + 1 <> :count
-- sqlite
UPDATE redrive_sequences SET value = value + :count WHERE name = :name RETURNING value - :count + 1, value

-- name: policy_put
-- Insert the texts of policies under their digests, unless there is a row that is not retired.
-- It waits for no other transaction, and may insert a second row on PostgreSQL.
-- postgres
INSERT INTO redrive_policies (digest, document)
SELECT digest, document
FROM unnest(:digest::text[], :document::text[]) AS given (digest, document)
WHERE NOT EXISTS (
    SELECT FROM redrive_policies AS known WHERE known.digest = given.digest AND known.retired_at IS NULL
)
-- sqlite
INSERT INTO redrive_policies (digest, document) VALUES (:digest, :document)
ON CONFLICT (digest) DO UPDATE SET retired_at = NULL WHERE retired_at IS NOT NULL

-- name: payload_insert
-- Insert the arguments of jobs.
-- transaction: last
-- many: pairs
-- postgres
INSERT INTO redrive_payloads (job_id, payload)
SELECT * FROM unnest(:job_id::bigint[], :payload::bytea[])
-- sqlite
INSERT INTO redrive_payloads (job_id, payload)
SELECT CAST(key AS INTEGER), CAST(value AS BLOB) FROM json_each(:pairs)

-- name: tag_put
-- Write the tags of new jobs.
-- transaction: last
-- postgres
INSERT INTO redrive_tags (tag, job_id)
SELECT * FROM unnest(:tag::text[], :job_id::bigint[])
-- sqlite
INSERT INTO redrive_tags (tag, job_id) VALUES (:tag, :job_id)

-- name: trace_put
-- Write the traces of jobs; each replaces the one before.
-- If a tracer listens.
-- transaction: last
-- postgres
INSERT INTO redrive_traces (job_id, trace)
SELECT * FROM unnest(:job_id::bigint[], :trace::text[])
ON CONFLICT (job_id) DO UPDATE SET trace = excluded.trace
-- sqlite
INSERT INTO redrive_traces (job_id, trace) VALUES (:job_id, :trace)
ON CONFLICT (job_id) DO UPDATE SET trace = excluded.trace

-- name: job_insert_alike
-- Insert jobs that differ only in their ids, each ready at its due time.
-- For many calls of a task at once.
-- transaction: last
-- postgres
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, salt
)
SELECT
    id, :task::text, :queue::text, :priority::bigint, 'ready', :hold::text, :policy::text, :partition::text,
    :enqueued_at::timestamptz, :scheduled_at::timestamptz, :latest_at::timestamptz, :timeout_for::interval, :salt::bigint
FROM unnest(:ids::bigint[]) AS given (id)
-- sqlite
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, salt
)
SELECT
    value, :task, :queue, :priority, 'ready', :hold, :policy, :partition, :enqueued_at, :scheduled_at, :latest_at,
    :timeout_for, :salt
FROM json_each(:ids)

-- name: job_insert_made
-- Insert jobs that differ only in their ids and origins, each ready at its due time.
-- For schedules that create many jobs at once.
-- transaction: last
-- postgres
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, origin,
    salt
)
SELECT
    key::bigint, :task::text, :queue::text, :priority::bigint, 'ready', :hold::text, :policy::text, :partition::text,
    :enqueued_at::timestamptz, :scheduled_at::timestamptz, :latest_at::timestamptz, :timeout_for::interval,
    value, :salt::bigint
FROM json_each_text(:made::json)
-- sqlite
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, origin,
    salt
)
SELECT
    CAST(key AS INTEGER), :task, :queue, :priority, 'ready', :hold, :policy, :partition, :enqueued_at, :scheduled_at, :latest_at,
    :timeout_for, value, :salt
FROM json_each(:made)

-- name: job_insert
-- Insert jobs, each ready at its due time.
-- transaction: last
-- postgres
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, key, key_until, parent_id, enqueued_at, scheduled_at,
    latest_at, expires_at, timeout_for, origin, salt
)
SELECT
    id, task, queue, priority, 'ready', hold, policy, partition, key, key_until, parent_id, enqueued_at, scheduled_at,
    latest_at, expires_at, timeout_for, origin, salt
FROM unnest(
    :id::bigint[], :task::text[], :queue::text[], :priority::bigint[], :hold::text[], :policy::text[],
    :partition::text[], :key::text[], :key_until::text[], :parent_id::bigint[], :enqueued_at::timestamptz[],
    :scheduled_at::timestamptz[], :latest_at::timestamptz[], :expires_at::timestamptz[], :timeout_for::interval[], :origin::text[],
    :salt::bigint[]
) AS given (
    id, task, queue, priority, hold, policy, partition, key, key_until, parent_id, enqueued_at, scheduled_at, latest_at,
    expires_at, timeout_for, origin, salt
)
-- sqlite
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, key, key_until, parent_id, enqueued_at,
    scheduled_at, latest_at, expires_at, timeout_for, origin, salt
) VALUES (
    :id, :task, :queue, :priority, 'ready', :hold, :policy, :partition, :key, :key_until, :parent_id, :enqueued_at,
    :scheduled_at, :latest_at, :expires_at, :timeout_for, :origin, :salt
)

-- fragment: job_columns
-- The fields of a job as it is read everywhere, of redrive_jobs, on PostgreSQL AS job.
-- postgres
    id, task, queue, priority, state, hold, note, enqueued_at, scheduled_at, started_at, claimed_at, finished_at,
    caught_at, skipped_at, attempt, failures, crashes, snoozes, redrives, lease_id, worker_id, parent_id, partition,
    key, key_until, origin, reason, error, expires_at, fingerprint,
    (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
-- sqlite
    id, task, queue, priority, state, hold, note, enqueued_at, scheduled_at, started_at, claimed_at, finished_at,
    caught_at, skipped_at, attempt, failures, crashes, snoozes, redrives, lease_id, worker_id, parent_id, partition,
    key, key_until, origin, reason, error, expires_at, fingerprint,
    -- In RETURNING, SQLite uses an index for a text only if it is an expression: hence the plus.
    (SELECT document FROM redrive_policies WHERE digest = +redrive_jobs.policy) AS policy

-- name: job_get
-- Return one job.
-- postgres
SELECT
-- include job_columns
FROM redrive_jobs AS job
WHERE id = :id::bigint
-- sqlite
SELECT
-- include job_columns
FROM redrive_jobs
WHERE id = :id

-- name: job_lock
-- Return one job, and lock it until the transaction ends.
-- SQLite has one writer at a time and needs no lock.
-- postgres
SELECT
-- include job_columns
FROM redrive_jobs AS job
WHERE id = :id::bigint
FOR UPDATE
-- sqlite
SELECT
-- include job_columns
FROM redrive_jobs
WHERE id = :id

-- name: documents_of
-- Return the documents of jobs that their errors may repeat, each with the job and its kind.
-- A machine has its transition's id as that of a move.
-- postgres
SELECT job_id, 'payload' AS kind, payload AS document FROM redrive_payloads
WHERE job_id = ANY (:ids::bigint[])
UNION ALL
SELECT job_id, 'result', result FROM redrive_results
WHERE job_id = ANY (:ids::bigint[])
UNION ALL
SELECT job_id, 'progress', convert_to(details, 'UTF8') FROM redrive_progress
WHERE job_id = ANY (:ids::bigint[])
UNION ALL
SELECT job_id, 'values', set_values FROM redrive_runs
WHERE set_values IS NOT NULL AND job_id = ANY (:ids::bigint[])
UNION ALL
SELECT run_id, 'step', result FROM redrive_steps
WHERE result IS NOT NULL AND run_id = ANY (:ids::bigint[])
UNION ALL
SELECT run_id, 'signal', payload FROM redrive_signals
WHERE payload IS NOT NULL AND run_id = ANY (:ids::bigint[])
UNION ALL
SELECT move.id, 'data', instance.data FROM redrive_moves AS move
INNER JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
WHERE instance.data IS NOT NULL AND move.id = ANY (:ids::bigint[])
-- sqlite
SELECT job_id, 'payload' AS kind, payload AS document FROM redrive_payloads
WHERE job_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT job_id, 'result', result FROM redrive_results
WHERE job_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT job_id, 'progress', CAST(details AS BLOB) FROM redrive_progress
WHERE job_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT job_id, 'values', set_values FROM redrive_runs
WHERE set_values IS NOT NULL AND job_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT run_id, 'step', result FROM redrive_steps
WHERE result IS NOT NULL AND run_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT run_id, 'signal', payload FROM redrive_signals
WHERE payload IS NOT NULL AND run_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT move.id, 'data', instance.data FROM redrive_moves AS move
INNER JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
WHERE instance.data IS NOT NULL AND move.id IN (SELECT value FROM json_each(:ids))

-- name: result_of
-- Return the result of one job, if it has one.
-- both
SELECT result FROM redrive_results WHERE job_id = :job_id::bigint

-- name: ends_of
-- Return the state of jobs, and how they ended.
-- While a caller waits for several results.
-- both
SELECT id, task, state, enqueued_at, reason, error, note FROM redrive_jobs
WHERE id = ANY (:ids::bigint[])

-- name: results_of
-- Return the results of jobs, with the ids of the jobs; a handler that returned None has left none.
-- both
SELECT job_id, result FROM redrive_results
WHERE job_id = ANY (:ids::bigint[])

-- name: tags_of
-- Return the tags of jobs, with the ids of the jobs.
-- both
SELECT job_id, tag FROM redrive_tags
WHERE job_id = ANY (:ids::bigint[])
ORDER BY job_id, tag

-- name: job_beside
-- Return what belongs to one job: its tags, trace and progress, what operators did, and how many dead jobs are alike.
-- For its page, in one statement.
-- both
SELECT 'tag' AS kind, NULL::bigint AS number, NULL::timestamptz AS at, NULL::text AS actor, tag AS text, NULL::text AS more
FROM redrive_tags
WHERE job_id = :id::bigint
UNION ALL
SELECT 'trace', job_id, NULL, NULL, trace, NULL FROM redrive_traces WHERE job_id = :id OR job_id = :parent_id::bigint
UNION ALL
SELECT 'progress', lease_id, at, NULL, details, NULL FROM redrive_progress WHERE job_id = :id
UNION ALL
SELECT * FROM (
    SELECT 'act', id, at, actor, action, details FROM redrive_audit
    WHERE about = :about::text
    ORDER BY id DESC
    LIMIT :acts::bigint
) AS act
UNION ALL
-- An entry about several jobs has their ids in its details, which are in no index.
SELECT * FROM (
    SELECT 'bulk', id, at, actor, action, details FROM (
        SELECT id, at, actor, action, details, about FROM redrive_audit
        ORDER BY id DESC
        LIMIT :searched::bigint
    ) AS newest
    WHERE (about IS NULL OR about <> :about)
        AND replace(replace(details, '[', ','), ']', ',') LIKE '%,' || :id || ',%'
    ORDER BY id DESC
    LIMIT :acts
) AS bulk
UNION ALL
SELECT 'alike', count(*), NULL, NULL, '', NULL FROM (
    SELECT 1 FROM redrive_jobs
    WHERE fingerprint = :group::text AND state = 'dead' AND caught_at IS NULL AND (skipped_at > finished_at) IS NOT TRUE
    LIMIT :most::bigint
) AS alike

-- name: salt_of
-- Return the random part of a job's idempotency key.
-- both
SELECT salt FROM redrive_jobs WHERE id = :id::bigint

-- name: payload_of
-- Return the arguments of one job.
-- both
SELECT payload FROM redrive_payloads WHERE job_id = :job_id::bigint

-- name: trace_of
-- Return the trace of a job, or that of its parent if it has none.
-- Before an attempt, if a tracer listens.
-- both
SELECT trace FROM redrive_traces WHERE job_id = :job_id::bigint OR job_id = :parent_id::bigint
ORDER BY job_id DESC
LIMIT 1
