-- Return operations, newest first.
-- Called by select.
SELECT
-- include operation_columns.sql
FROM redrive_operations
WHERE :before_id IS NULL OR id < :before_id
ORDER BY id DESC
LIMIT :count
