-- Return items with a deadline or a time limit in the past, the earliest first.
-- Called by end_overdue, which locks their jobs before them.
SELECT
    schedule, key, NULL::bytea AS payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE sweep_at IS NOT NULL AND sweep_at <= :now::timestamptz
ORDER BY sweep_at
LIMIT :count::bigint
