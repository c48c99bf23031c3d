-- Prolongs the lives of workers whose heartbeats are late by the time in which no sweep has looked.
-- Called by sweep, which looks at such a worker every so often. Of a longer span only that much counts as silence.
UPDATE redrive_workers SET
    expires_at = expires_at
        + greatest(interval '0', :now - greatest(heartbeat_at, late_at) - :every),
    late_at = :now
WHERE id IN (
    SELECT id FROM redrive_workers
    WHERE stopped_at IS NULL AND heartbeat_at <= :now::timestamptz - :every::interval
    FOR UPDATE SKIP LOCKED
)
