-- Return failed instances by machine and key, in one state or in all.
-- Called by search; their index has no others.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine::text
    AND status = 'failed'
    AND key > :after::text
    AND (:state::text IS NULL OR state = :state::text)
ORDER BY key
LIMIT :count::bigint
