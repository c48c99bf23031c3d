-- Return failed instances by machine and key, in one state or in all.
-- Called by search; their index has no others.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine
    AND status = 'failed'
    AND key > :after
    AND (:state IS NULL OR state = :state)
ORDER BY key
LIMIT :count
