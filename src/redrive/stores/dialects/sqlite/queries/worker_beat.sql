-- Extends the life of a worker; never shortens it. Answers its id if it is registered.
-- Called by beat and claim.
UPDATE redrive_workers SET heartbeat_at = :now, expires_at = max(expires_at, :expires_at)
WHERE id = :id AND stopped_at IS NULL
RETURNING id
