-- Return items with a deadline or a time limit in the past, the earliest first.
-- Called by end_overdue, which locks their jobs before them.
SELECT
    schedule, key, NULL AS payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE sweep_at <= :now
ORDER BY sweep_at
LIMIT :count
