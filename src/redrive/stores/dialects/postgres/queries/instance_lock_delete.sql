-- Lock an instance to delete it, after the open transactions that put events into its line; return it, if it exists.
-- Called by delete.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine::text AND key = :key::text
FOR UPDATE
