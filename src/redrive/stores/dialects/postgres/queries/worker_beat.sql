-- Extends the life of a worker; never shortens it. Answers its id if it is registered.
-- Called by beat and claim.
UPDATE redrive_workers SET
    heartbeat_at = :now::timestamptz,
    expires_at = greatest(expires_at, :expires_at::timestamptz)
WHERE id = :id::bigint AND stopped_at IS NULL
RETURNING id
