-- Register a worker.
-- Called by register.
INSERT INTO redrive_workers (
    id, name, host, pid, birth, lock_id, concurrency, queues, excluded, tasks, started_at, heartbeat_at, expires_at,
    version
) VALUES (
    :id, :name, :host, :pid, :birth, :lock_id, :concurrency, :queues, :excluded, :tasks, :now, :now, :expires_at,
    :version
)
