-- Extend the leases of workers with late heartbeats by the time in which no sweep has run.
-- Called by sweep. Of a longer gap only the interval of the sweeps counts as silence.
UPDATE redrive_workers SET
    expires_at = expires_at + max(0, :now - max(heartbeat_at, coalesce(late_at, heartbeat_at)) - :every),
    late_at = :now
WHERE stopped_at IS NULL AND heartbeat_at <= :now - :every
