-- Write which background duties of a worker fail, or that none does.
-- Called by report.
UPDATE redrive_workers SET trouble = :trouble WHERE id = :id AND stopped_at IS NULL
