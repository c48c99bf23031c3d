-- Return instances by machine and key, with the filters that are not NULL.
-- Called by select and get.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine::text
    AND key > :after::text
    AND (:key::text IS NULL OR key = :key::text)
    AND (:state::text IS NULL OR state = :state::text)
    AND (:status::text IS NULL OR status = :status::text)
ORDER BY key
LIMIT :count::bigint
