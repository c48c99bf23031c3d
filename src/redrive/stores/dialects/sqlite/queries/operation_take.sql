-- Lock a running operation with a due batch, and return it; nothing if another process has locked it.
-- Called by carry_out.
SELECT
-- include operation_columns.sql
FROM redrive_operations
WHERE id = :id AND state = 'running' AND next_at <= :before
