-- Extend the lease of a worker from the present instant, and never shorten it; return its id if it is registered.
-- Called by beat, as a transaction by itself: if a reply is lost, the row is not locked when the worker tries again.
-- transaction: own
UPDATE redrive_workers SET
    heartbeat_at = clock.now,
    expires_at = greatest(expires_at, clock.now + :lease_for::interval),
    resumed_at = CASE WHEN 3 * (clock.now - heartbeat_at) >= 2 * :lease_for THEN clock.now ELSE resumed_at END
FROM (SELECT coalesce(:now::timestamptz, now) AS now FROM redrive_clock) AS clock
WHERE id = :id::bigint AND stopped_at IS NULL
RETURNING id
