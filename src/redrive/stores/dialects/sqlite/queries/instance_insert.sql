-- Insert an instance unless it exists; return its key if it was inserted.
-- Called by send.
INSERT INTO redrive_instances (
    machine, key, status, to_state, job_id, event, created_at, entered_at
)
VALUES (:machine, :key, 'running', :to_state, :job_id, :event, :now, :now)
ON CONFLICT (machine, key) DO NOTHING
RETURNING key
