-- Insert an instance unless it exists; return its key if it was inserted.
-- Called by send.
INSERT INTO redrive_instances (
    machine, key, status, to_state, job_id, event, created_at, entered_at
)
VALUES (
    :machine::text, :key::text, 'running', :to_state::text, :job_id::bigint, :event::text, :now::timestamptz,
    :now::timestamptz
)
ON CONFLICT (machine, key) DO NOTHING
RETURNING key
