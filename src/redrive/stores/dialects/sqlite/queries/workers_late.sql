-- Prolongs the lives of workers whose heartbeats are late by the time in which no sweep has looked.
-- Called by sweep, which looks at such a worker every so often. Of a longer span only that much counts as silence.
UPDATE redrive_workers SET
    expires_at = expires_at + max(0, :now - max(heartbeat_at, coalesce(late_at, heartbeat_at)) - :every),
    late_at = :now
WHERE stopped_at IS NULL AND heartbeat_at <= :now - :every
