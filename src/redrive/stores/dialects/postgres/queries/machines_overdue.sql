-- Lock idle instances of a machine with due timeouts that the code has, the earliest first, without locked ones.
-- Called by take_turns.
SELECT
-- include instance_columns.sql
FROM redrive_instances
WHERE machine = :machine::text AND timeout_at IS NOT NULL AND timeout_at <= :now::timestamptz AND job_id IS NULL
    AND machine || '/' || state = ANY (:states::text[])
    AND machine || '/' || timeout_event = ANY (:events::text[])
ORDER BY timeout_at
LIMIT :count::bigint
FOR NO KEY UPDATE SKIP LOCKED
