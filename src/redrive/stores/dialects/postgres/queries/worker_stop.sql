-- Write that a worker has left.
-- Called by leave.
UPDATE redrive_workers SET stopped_at = :now::timestamptz WHERE id = :id::bigint AND stopped_at IS NULL
