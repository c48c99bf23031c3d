-- Lock an instance to delete it; return it, if it exists.
-- Called by delete.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine AND key = :key
