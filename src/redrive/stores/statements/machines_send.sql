-- The statements of operations/machines/send.py.

-- name: instance_insert
-- Insert an instance unless it exists; return its key if it was inserted.
-- both
INSERT INTO redrive_instances (
    machine, key, status, to_state, job_id, event, created_at, entered_at
)
VALUES (
    :machine::text, :key::text, 'running', :to_state::text, :job_id::bigint, :event::text, :now::timestamptz,
    :now::timestamptz
)
ON CONFLICT (machine, key) DO NOTHING
RETURNING key

-- name: move_keyed
-- Return the event of an instance with a key.
-- both
SELECT
-- include move_columns
FROM redrive_moves
WHERE machine = :machine::text AND key = :key::text AND event_key = :event_key::text

-- name: instance_hold
-- Keep an instance from being deleted until the transaction ends; return its key, if it exists.
-- For events that queue while their instance is busy. Other transactions can still read, move and lock it. The
-- transaction is the only writer of SQLite, so nothing deletes the instance there.
-- both
SELECT key FROM redrive_instances WHERE machine = :machine::text AND key = :key::text FOR KEY SHARE
