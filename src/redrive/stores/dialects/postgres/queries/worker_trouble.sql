-- Write which background duties of a worker fail, or that none does.
-- Called by report.
UPDATE redrive_workers SET trouble = :trouble::text WHERE id = :id::bigint AND stopped_at IS NULL
