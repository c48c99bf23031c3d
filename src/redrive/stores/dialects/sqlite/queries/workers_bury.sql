-- Strikes workers off that fell silent or are known to be gone; one that was only asleep registers again.
-- Called by sweep, before it looks for what they held.
UPDATE redrive_workers SET stopped_at = :now
WHERE stopped_at IS NULL AND (expires_at <= :now OR id IN (SELECT value FROM json_each(:gone)))
