-- Lock an instance if it is free, in a state that the code has, and no other transaction has locked it.
-- Called by send with busy="queue".
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine AND key = :key AND job_id IS NULL
    AND (state IS NULL OR machine || '/' || state IN (SELECT value FROM json_each(:states)))
