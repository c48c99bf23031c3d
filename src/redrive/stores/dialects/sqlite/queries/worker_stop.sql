-- Notes that a worker has left in order.
-- Called by leave.
UPDATE redrive_workers SET stopped_at = :now WHERE id = :id AND stopped_at IS NULL
