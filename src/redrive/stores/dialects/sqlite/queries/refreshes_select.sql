-- Return items of a refresh by key.
-- Called by select.
SELECT
    schedule, key, NULL AS payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE schedule = :schedule AND key > :after
ORDER BY key
LIMIT :count
