-- Register a worker.
-- Called by register.
INSERT INTO redrive_workers (
    id, name, host, pid, birth, lock_id, concurrency, queues, excluded, tasks, started_at, heartbeat_at, expires_at,
    version
) VALUES (
    :id::bigint, :name::text, :host::text, :pid::bigint, :birth::text, :lock_id::integer, :concurrency::integer,
    :queues::text[], :excluded::text[], :tasks::text[], :now::timestamptz, :now, :expires_at::timestamptz,
    :version::text
)
