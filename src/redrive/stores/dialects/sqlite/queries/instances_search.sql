-- Return instances by key, with the filters that are not NULL, among a limited number of them.
-- Called by search.
SELECT
-- include instance_columns.sql
FROM (
    SELECT
-- include instance_columns.sql
    FROM redrive_instances
    WHERE machine = :machine AND key > :after
    ORDER BY key
    LIMIT :budget
) AS near
WHERE (:state IS NULL OR state = :state)
    AND (:status IS NULL OR status = :status)
ORDER BY key
LIMIT :count
