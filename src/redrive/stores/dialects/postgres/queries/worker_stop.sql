-- Notes that a worker has left in order.
-- Called by leave.
UPDATE redrive_workers SET stopped_at = :now::timestamptz WHERE id = :id::bigint AND stopped_at IS NULL
