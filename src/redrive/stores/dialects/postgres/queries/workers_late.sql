-- Extend the leases of workers with late heartbeats by the time in which no sweep has run.
-- Called by sweep. Of a longer gap only the interval of the sweeps counts as silence.
UPDATE redrive_workers SET
    expires_at = expires_at
        + greatest(interval '0', :now - greatest(heartbeat_at, late_at) - :every),
    late_at = :now
WHERE id IN (
    SELECT id FROM redrive_workers
    WHERE stopped_at IS NULL AND heartbeat_at <= :now::timestamptz - :every::interval
    FOR UPDATE SKIP LOCKED
)
