-- The statements of operations/machines/rows.py.

-- fragment: instance_columns
-- The fields of an instance, of redrive_instances.
-- both
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting

-- name: instances_lock
-- Lock instances in the order of their machines and keys, and return those that exist.
-- many: rows
-- postgres
SELECT
    instance.machine, instance.key, instance.state, instance.to_state, instance.status, instance.job_id,
    instance.event, instance.moves, instance.created_at, instance.entered_at,
    instance.timeout_at, instance.timeout_event, instance.timeout_payload,
    instance.data, instance.error, instance.version, instance.waiting
FROM (
    SELECT machine, key FROM unnest(:machine::text[], :key::text[]) AS row (machine, key) ORDER BY machine, key
) AS given
CROSS JOIN LATERAL (
    SELECT * FROM redrive_instances WHERE machine = given.machine AND key = given.key FOR NO KEY UPDATE
) AS instance
-- sqlite
SELECT
-- include instance_columns
FROM redrive_instances
WHERE machine = :machine AND key = :key

-- name: instance_lock_idle
-- Lock an instance unless a transition of it runs; return it, and whether it is locked.
-- postgres
WITH idle AS MATERIALIZED (
    SELECT * FROM redrive_instances
    WHERE machine = :machine::text AND key = :key::text AND (job_id IS NULL OR status = 'failed')
    FOR NO KEY UPDATE
)
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting, true AS locked
FROM idle
UNION ALL
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting, false AS locked
FROM redrive_instances
WHERE machine = :machine::text AND key = :key::text AND NOT EXISTS (SELECT 1 FROM idle)
-- sqlite
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting, 1 AS locked
FROM redrive_instances
WHERE machine = :machine AND key = :key

-- name: instance_lock_delete
-- Lock an instance to delete it, after the open transactions that put events into its line; return it, if it exists.
-- both
SELECT
-- include instance_columns
FROM redrive_instances
WHERE machine = :machine::text AND key = :key::text
FOR UPDATE

-- name: instance_put
-- Write the state of instances.
-- postgres
UPDATE redrive_instances AS instance SET
    state = given.state,
    to_state = given.to_state,
    status = given.status,
    job_id = given.job_id,
    event = given.event,
    moves = given.moves,
    entered_at = given.entered_at,
    timeout_at = given.timeout_at,
    timeout_event = given.timeout_event,
    timeout_payload = given.timeout_payload,
    data = given.data,
    error = given.error,
    version = given.version,
    waiting = given.waiting
FROM unnest(
    :machine::text[], :key::text[], :state::text[], :to_state::text[], :status::text[], :job_id::bigint[],
    :event::text[], :moves::integer[], :entered_at::timestamptz[], :timeout_at::timestamptz[], :timeout_event::text[],
    :timeout_payload::bytea[], :data::bytea[], :error::text[], :version::text[],
    :waiting::text[]
) AS given (
    machine, key, state, to_state, status, job_id, event, moves, entered_at, timeout_at, timeout_event, timeout_payload,
    data, error, version, waiting
)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_instances WHERE machine = given.machine AND key = given.key OFFSET 0
) AS found
WHERE instance.ctid = found.place
-- sqlite
UPDATE redrive_instances SET
    state = :state,
    to_state = :to_state,
    status = :status,
    job_id = :job_id,
    event = :event,
    moves = :moves,
    entered_at = :entered_at,
    timeout_at = :timeout_at,
    timeout_event = :timeout_event,
    timeout_payload = :timeout_payload,
    data = :data,
    error = :error,
    version = :version,
    waiting = :waiting
WHERE machine = :machine AND key = :key

-- name: instance_move
-- Write that instances have entered the states that their transitions led to.
-- For those without a timeout before and after it, and without other data.
-- postgres
UPDATE redrive_instances AS instance SET
    state = instance.to_state,
    to_state = NULL,
    status = given.status,
    job_id = NULL,
    event = NULL,
    moves = instance.moves + 1,
    entered_at = given.entered_at,
    error = NULL,
    version = given.version
FROM unnest(
    :machine::text[], :key::text[], :status::text[], :entered_at::timestamptz[], :version::text[]
) AS given (machine, key, status, entered_at, version)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_instances WHERE machine = given.machine AND key = given.key OFFSET 0
) AS found
WHERE instance.ctid = found.place
-- sqlite
UPDATE redrive_instances SET
    state = to_state,
    to_state = NULL,
    status = :status,
    job_id = NULL,
    event = NULL,
    moves = moves + 1,
    entered_at = :entered_at,
    error = NULL,
    version = :version
WHERE machine = :machine AND key = :key

-- fragment: move_columns
-- The fields of an event of an instance, of redrive_moves.
-- both
    id, machine, key, source, status, from_state, to_state, event, event_key, digest, payload, sent_at, finished_at,
    attempts, error, failed_to, actor

-- name: move_insert
-- Insert events of instances, without those with a key that another event has; return the ids.
-- many: rows
-- postgres
INSERT INTO redrive_moves (
-- include move_columns
)
SELECT
-- include move_columns
FROM unnest(
    :id::bigint[], :machine::text[], :key::text[], :source::text[], :status::text[], :from_state::text[],
    :to_state::text[], :event::text[], :event_key::text[], :digest::text[], :payload::bytea[], :sent_at::timestamptz[],
    :finished_at::timestamptz[], :attempts::integer[], :error::text[], :failed_to::text[], :actor::text[]
) AS given (
-- include move_columns
)
ON CONFLICT (machine, key, event_key) WHERE event_key IS NOT NULL DO NOTHING
RETURNING id
-- sqlite
INSERT INTO redrive_moves (
-- include move_columns
)
VALUES (
    :id, :machine, :key, :source, :status, :from_state, :to_state, :event, :event_key, :digest, :payload, :sent_at,
    :finished_at, :attempts, :error, :failed_to, :actor
)
ON CONFLICT (machine, key, event_key) WHERE event_key IS NOT NULL DO NOTHING
RETURNING id

-- name: moves_next
-- Return the first two waiting events of each of these instances, the first one first; with a source only its
-- events.
-- many: rows
-- postgres
SELECT
    move.id, move.machine, move.key, move.source, move.status, move.from_state, move.to_state, move.event,
    move.event_key, move.digest, move.payload, move.sent_at, move.finished_at, move.attempts, move.error,
    move.failed_to, move.actor
FROM unnest(:machine::text[], :key::text[], :source::text[]) AS given (machine, key, source)
CROSS JOIN LATERAL (
    SELECT * FROM redrive_moves AS waiting
    WHERE waiting.machine = given.machine AND waiting.key = given.key AND waiting.status = 'queued'
        AND (given.source IS NULL OR waiting.source = given.source)
    ORDER BY waiting.id
    LIMIT 2
) AS move
ORDER BY move.id
-- sqlite
SELECT
-- include move_columns
FROM redrive_moves
WHERE machine = :machine AND key = :key AND status = 'queued' AND (:source IS NULL OR source = :source)
ORDER BY id
LIMIT 2

-- name: move_end
-- Write that events have ended. The content of a refused one is kept for operators.
-- postgres
UPDATE redrive_moves AS move SET
    status = given.status,
    finished_at = given.finished_at,
    attempts = given.attempts,
    error = given.error,
    payload = CASE WHEN given.status = 'refused' THEN move.payload END
FROM unnest(
    :id::bigint[], :status::text[], :finished_at::timestamptz[], :attempts::integer[], :error::text[]
) AS given (id, status, finished_at, attempts, error)
WHERE move.id = ANY (:id) AND move.id = given.id
-- sqlite
UPDATE redrive_moves SET
    status = :status,
    finished_at = :finished_at,
    attempts = :attempts,
    error = :error,
    payload = CASE WHEN :status = 'refused' THEN payload END
WHERE id = :id

-- name: move_start
-- Write that the transitions of events have begun.
-- postgres
UPDATE redrive_moves AS move SET
    status = 'running',
    from_state = given.from_state,
    to_state = given.to_state,
    failed_to = given.failed_to,
    finished_at = NULL,
    payload = NULL
FROM unnest(:id::bigint[], :from_state::text[], :to_state::text[], :failed_to::text[]) AS given (
    id, from_state, to_state, failed_to
)
WHERE move.id = ANY (:id) AND move.id = given.id
-- sqlite
UPDATE redrive_moves SET
    status = 'running',
    from_state = :from_state,
    to_state = :to_state,
    failed_to = :failed_to,
    finished_at = NULL,
    payload = NULL
WHERE id = :id
