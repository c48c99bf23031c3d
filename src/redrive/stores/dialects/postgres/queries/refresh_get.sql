-- Return one item.
-- Called by get, and before its job is locked.
SELECT
    schedule, key, payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE schedule = :schedule AND key = :key
