-- Return instances by key, with the filters that are not NULL, among a limited number of them.
-- Called by search.
SELECT
-- include instance_columns.sql
FROM (
    SELECT
-- include instance_columns.sql
    FROM redrive_instances
    WHERE machine = :machine::text AND key > :after::text
    ORDER BY key
    LIMIT :budget::bigint
) AS near
WHERE (:state::text IS NULL OR state = :state::text)
    AND (:status::text IS NULL OR status = :status::text)
ORDER BY key
LIMIT :count::bigint
