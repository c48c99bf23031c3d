-- The statements of operations/runs/start.py.

-- fragment: run_start_run
-- Insert the run of run_start, under the next number of a job, unless its workflow has a run with its id.
-- sqlite
INSERT INTO redrive_runs (job_id, workflow, id, version, digest)
SELECT value + 1, :workflow, coalesce(:run_id, 'run-' || (value + 1)), :version, :digest
FROM redrive_sequences
WHERE name = 'job'
    AND (:partition IS NOT NULL OR NOT EXISTS (SELECT 1 FROM redrive_queues WHERE name = :queue AND ordered))
ON CONFLICT (workflow, id) DO NOTHING

-- fragment: run_start_job
-- Insert the job of run_start, if its run was inserted.
-- sqlite
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, expires_at, timeout_for, origin,
    salt
)
SELECT
    run.job_id, :task, :queue, :priority, 'ready',
    CASE WHEN coalesce(:due_at, :now + :delay) > :now THEN 'delay' END,
    :policy, :partition, :now, max(:now, coalesce(:due_at, :now + :delay)), coalesce(:expires_at, :now + :expires_for),
    :timeout_for, :origin || run.id, :salt
FROM redrive_sequences AS sequence
JOIN redrive_runs AS run ON run.job_id = sequence.value + 1
WHERE sequence.name = 'job'

-- name: run_start
-- Start a run, unless its workflow has one with its id: insert the run and its job, and return the job's id, the instant
-- and the run's id, which is NULL if there is such a run; no row if the job is refused.
-- As enqueue_full. The origin is given without the id.
-- transaction: own
-- first: enqueue_policy
-- first: run_start_run
-- first: run_start_job
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
run AS (
    INSERT INTO redrive_runs (job_id, workflow, id, version, digest)
    SELECT id, :workflow::text, coalesce(:run_id::text, 'run-' || id), :version::integer, :digest::bigint FROM new
    ON CONFLICT (workflow, id) DO NOTHING
    RETURNING job_id, id
),
made AS (
    SELECT new.id, new.now, new.due_at, run.id AS name FROM new JOIN run ON run.job_id = new.id
),
policy AS (
    INSERT INTO redrive_policies (digest, document)
    SELECT :policy::text, :document::text
    FROM made
    WHERE NOT EXISTS (
        SELECT FROM redrive_policies AS known WHERE known.digest = :policy AND known.retired_at IS NULL
    )
),
argument AS (
    INSERT INTO redrive_payloads (job_id, payload) SELECT id, :payload::bytea FROM made
),
tag AS (
    INSERT INTO redrive_tags (tag, job_id) SELECT tag, id FROM made CROSS JOIN unnest(:tags::text[]) AS tag
),
trace AS (
    INSERT INTO redrive_traces (job_id, trace) SELECT id, :trace::text FROM made WHERE :trace IS NOT NULL
),
job AS (
    INSERT INTO redrive_jobs (
        id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, expires_at, timeout_for,
        origin, salt
    )
    SELECT
        id, :task::text, :queue, :priority::bigint, 'ready', CASE WHEN due_at > now THEN 'delay' END, :policy,
        :partition, now, due_at, coalesce(:expires_at::timestamptz, now + :expires_for::interval),
        :timeout_for::interval, :origin::text || name, :salt::bigint
    FROM made
)
SELECT
    new.id, new.now, made.name,
    CASE WHEN :channel::text IS NOT NULL AND made.id IS NOT NULL THEN pg_notify(:channel, '') END AS notified
FROM new LEFT JOIN made ON made.id = new.id
-- sqlite
UPDATE redrive_sequences SET value = value + 1
WHERE name = 'job'
    AND (:partition IS NOT NULL OR NOT EXISTS (SELECT 1 FROM redrive_queues WHERE name = :queue AND ordered))
RETURNING value AS id, :now AS now, (SELECT id FROM redrive_runs WHERE job_id = value) AS name

-- name: run_insert
-- Insert runs, each unless its workflow has a run with its id, and return the jobs of the new ones.
-- Before the jobs are inserted.
-- many: rows
-- postgres
INSERT INTO redrive_runs (job_id, workflow, id, version, digest, parent_id, parent_path, forked_from, set_values)
SELECT * FROM unnest(
    :job_id::bigint[], :workflow::text[], :id::text[], :version::integer[], :digest::bigint[], :parent_id::bigint[],
    :parent_path::text[], :forked_from::bigint[], :set_values::bytea[]
)
ON CONFLICT (workflow, id) DO NOTHING
RETURNING job_id
-- sqlite
INSERT INTO redrive_runs (job_id, workflow, id, version, digest, parent_id, parent_path, forked_from, set_values)
VALUES (:job_id, :workflow, :id, :version, :digest, :parent_id, :parent_path, :forked_from, :set_values)
ON CONFLICT (workflow, id) DO NOTHING
RETURNING job_id

-- fragment: run_columns
-- The fields of a run, of redrive_runs AS run and redrive_jobs AS job.
-- both
    run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
    run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
    CASE WHEN job.hold = 'held' THEN job.note END AS held,
    CASE WHEN job.hold = 'held' THEN job.unreadable_at END AS held_at

-- name: runs_named
-- Return the runs of a workflow with these ids.
-- transaction: none
-- postgres
SELECT
-- include run_columns
FROM (SELECT DISTINCT id FROM unnest(:ids::text[]) AS id) AS given
CROSS JOIN LATERAL (SELECT * FROM redrive_runs WHERE workflow = :workflow::text AND id = given.id OFFSET 0) AS run
CROSS JOIN LATERAL (SELECT hold, note, unreadable_at FROM redrive_jobs WHERE id = run.job_id OFFSET 0) AS job
-- sqlite
SELECT
-- include run_columns
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.workflow = :workflow AND run.id IN (SELECT value FROM json_each(:ids))

-- name: steps_copy
-- Copy recorded steps of one run to another.
-- both
INSERT INTO redrive_steps (
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref, seq
)
SELECT
    :fork_id::bigint, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref, seq
FROM redrive_steps
WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[])
