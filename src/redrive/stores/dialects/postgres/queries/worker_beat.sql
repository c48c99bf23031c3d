-- Extend the lease of a worker, and never shorten it; return its id if it is registered.
-- Called by claim. After a silence of two thirds of its lease, the worker counts as resumed.
UPDATE redrive_workers SET
    heartbeat_at = :now::timestamptz,
    expires_at = greatest(expires_at, :expires_at::timestamptz),
    resumed_at = CASE WHEN 3 * (:now - heartbeat_at) >= 2 * (:expires_at - :now) THEN :now ELSE resumed_at END
WHERE id = :id::bigint AND stopped_at IS NULL
RETURNING id
