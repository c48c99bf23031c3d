-- Lock idle instances of a machine with due timeouts that the code has, the earliest first, without locked ones.
-- Called by take_turns.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine AND timeout_at IS NOT NULL AND timeout_at <= :now AND job_id IS NULL
    AND machine || '/' || state IN (SELECT value FROM json_each(:states))
    AND machine || '/' || timeout_event IN (SELECT value FROM json_each(:events))
ORDER BY timeout_at
LIMIT :count
