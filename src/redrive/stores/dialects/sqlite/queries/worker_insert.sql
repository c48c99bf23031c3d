-- Registers a worker.
-- Called by register.
INSERT INTO redrive_workers (id, name, concurrency, queues, started_at, heartbeat_at, expires_at)
VALUES (:id, :name, :concurrency, :queues, :now, :now, :expires_at)
