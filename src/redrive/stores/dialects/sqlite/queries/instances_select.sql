-- Return instances by machine and key, with the filters that are not NULL.
-- Called by select and get.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine
    AND key > :after
    AND (:key IS NULL OR key = :key)
    AND (:state IS NULL OR state = :state)
    AND (:status IS NULL OR status = :status)
ORDER BY key
LIMIT :count
