-- The statements of operations/bulk.py.

-- name: dead_window
-- Return the number of the oldest dead jobs that were not caught, up to a limit, and the largest of their ids.
-- Bulk operations that search errors read no further at once.
-- both
SELECT count(*), coalesce(max(id), 0) FROM (
    SELECT id FROM redrive_jobs
    WHERE state = 'dead' AND caught_at IS NULL AND id > :after_id::bigint AND id < :before_id::bigint
    ORDER BY id
    LIMIT :most::bigint
) AS oldest

-- name: operation_same
-- Return the id of the running operation that is equal to a new one.
-- both
SELECT id FROM redrive_operations WHERE digest = :digest::text AND state = 'running'

-- name: operation_insert
-- Insert an operation, unless an equal one runs or the operation is taken back already.
-- both
INSERT INTO redrive_operations (
    action, wanted, options, digest, undoes, actor, rate, state, bound_id, frozen_at, matched, last_id, next_at
) VALUES (
    :action::text, :wanted::text, :options::text, :digest::text, :undoes::bigint, :actor::text, :rate::text, 'running',
    :bound_id::bigint, :frozen_at::timestamptz, :matched::bigint, :last_id::bigint, :next_at::timestamptz
)
ON CONFLICT DO NOTHING
RETURNING id

-- fragment: operation_columns
-- The fields of an operation, of redrive_operations.
-- both
    id, action, wanted, options, undoes, actor, rate, state, bound_id, frozen_at, matched, last_id, done, kept, next_at,
    ended_at, last_error,
    (SELECT newer.id FROM redrive_operations AS newer WHERE newer.undoes = redrive_operations.id) AS undone_by

-- name: operation_get
-- Return an operation.
-- both
SELECT
-- include operation_columns
FROM redrive_operations
WHERE id = :id::bigint

-- name: operations_select
-- Return operations, newest first.
-- both
SELECT
-- include operation_columns
FROM redrive_operations
WHERE :before_id::bigint IS NULL OR id < :before_id
ORDER BY id DESC
LIMIT :count::bigint

-- name: audit_of_operation
-- Return the entries of the audit log about an operation, oldest first.
-- both
SELECT id, at, actor, action, details
FROM redrive_audit
WHERE operation_id = :operation_id::bigint AND id > :after_id::bigint
ORDER BY id
LIMIT :count::bigint

-- name: operation_next
-- Return the running operation with the batch that is due first.
-- Every few seconds in each worker.
-- transaction: none
-- both
SELECT id, next_at FROM redrive_operations WHERE state = 'running' ORDER BY next_at LIMIT 1

-- name: operation_take
-- Lock a running operation with a due batch, and return it; nothing if another process has locked it.
-- both
SELECT
-- include operation_columns
FROM redrive_operations
WHERE id = :id::bigint AND state = 'running' AND next_at <= :before::timestamptz
FOR UPDATE SKIP LOCKED

-- name: operation_put
-- Write how far an operation is.
-- both
UPDATE redrive_operations SET
    state = :state::text,
    matched = :matched::bigint,
    last_id = :last_id::bigint,
    done = :done::bigint,
    kept = :kept::bigint,
    next_at = :next_at::timestamptz,
    ended_at = :ended_at::timestamptz,
    last_error = :last_error::text
WHERE id = :id::bigint

-- name: job_locks
-- Return these jobs without those that others have locked, and lock them until the transaction ends.
-- SQLite needs no lock.
-- postgres
SELECT
-- include job_columns
FROM redrive_jobs AS job
WHERE id = ANY (:ids::bigint[])
ORDER BY id
FOR UPDATE SKIP LOCKED
-- sqlite
SELECT
-- include job_columns
FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: operation_failed
-- Store why a batch failed, and when it is tried again.
-- both
UPDATE redrive_operations SET last_error = :error::text, next_at = :next_at::timestamptz
WHERE id = :id::bigint AND state = 'running'

-- name: operation_stop
-- End a running operation, after the batch under way.
-- both
UPDATE redrive_operations SET state = 'stopped', ended_at = :now::timestamptz
WHERE id = :id::bigint AND state = 'running'
RETURNING id
