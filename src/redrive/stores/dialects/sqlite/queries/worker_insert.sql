-- Register a worker.
-- Called by register.
INSERT INTO redrive_workers (
    id, name, host, pid, birth, lock_id, concurrency, queues, tasks, started_at, heartbeat_at, expires_at, version
) VALUES (
    :id, :name, :host, :pid, :birth, :lock_id, :concurrency, :queues, :tasks, :now, :now, :expires_at, :version
)
