-- Registers a worker.
-- Called by register.
INSERT INTO redrive_workers (
    id, name, host, pid, birth, lock_id, concurrency, queues, started_at, heartbeat_at, expires_at
) VALUES (
    :id, :name, :host, :pid, :birth, :lock_id, :concurrency, :queues, :now, :now, :expires_at
)
