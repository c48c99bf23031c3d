-- Return an operation.
-- Called by get, stop and undo, and carry_out for the operation that it takes back.
SELECT
-- include operation_columns.sql
FROM redrive_operations
WHERE id = :id
