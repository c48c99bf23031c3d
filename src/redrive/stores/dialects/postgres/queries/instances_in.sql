-- Lock free instances in a state, without those that others have locked.
-- Called by migrate.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine::text AND state = :state::text AND job_id IS NULL AND key > :after::text
ORDER BY key
LIMIT :count::bigint
FOR NO KEY UPDATE SKIP LOCKED
