-- Lock free instances in a state, without those that others have locked.
-- Called by migrate.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine AND state = :state AND job_id IS NULL AND key > :after
ORDER BY key
LIMIT :count
