-- Extend the lease of a worker from the present instant, and never shorten it; return its id if it is registered.
-- Called by beat.
UPDATE redrive_workers SET
    heartbeat_at = :now,
    expires_at = max(expires_at, :now + :lease_for),
    resumed_at = CASE WHEN 3 * (:now - heartbeat_at) >= 2 * :lease_for THEN :now ELSE resumed_at END
WHERE id = :id AND stopped_at IS NULL
RETURNING id
