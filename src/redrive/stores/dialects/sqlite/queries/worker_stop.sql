-- Write that a worker has left.
-- Called by leave.
UPDATE redrive_workers SET stopped_at = :now WHERE id = :id AND stopped_at IS NULL
