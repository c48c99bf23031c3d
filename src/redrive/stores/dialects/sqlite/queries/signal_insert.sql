-- Insert a signal of a run, unless it has one with this name and key, and return its number.
-- Called by signal.
INSERT INTO redrive_signals (run_id, name, key, payload, at, pending)
VALUES (:run_id, :name, :key, :payload, :now, 1)
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
RETURNING id
