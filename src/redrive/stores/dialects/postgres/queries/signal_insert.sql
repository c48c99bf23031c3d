-- Insert a signal of a run, unless it has one with this name and key, and return its number.
-- Called by signal. It locks no run, because it may be a part of a transaction that stays open.
INSERT INTO redrive_signals (run_id, name, key, payload, at, pending)
VALUES (:run_id::bigint, :name::text, :key::text, :payload::bytea, :now::timestamptz, true)
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
RETURNING id
