-- Return instances that have been in a state since an instant, the longest there first.
-- Called by waiting.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine AND state = :state AND entered_at <= :until AND status <> 'completed'
ORDER BY entered_at
LIMIT :count
