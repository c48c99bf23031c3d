-- Delete workers from the registry whose leases have expired or that are known to be dead.
-- Called by sweep, before it reads their jobs. A worker that was only suspended registers again.
UPDATE redrive_workers SET stopped_at = :now
WHERE stopped_at IS NULL AND (expires_at <= :now OR id IN (SELECT value FROM json_each(:gone)))
