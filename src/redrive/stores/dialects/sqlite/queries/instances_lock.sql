-- Lock instances in the order of their machines and keys, and return those that exist.
-- Called by send, settle and every action of an operator on one instance.
-- many: rows
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine AND key = :key
