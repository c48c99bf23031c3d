-- Return these items of a refresh, and lock them until the transaction ends.
-- Called by every operation that moves items by key. SQLite needs no lock.
SELECT
    schedule, key, NULL AS payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE schedule = :schedule AND key IN (SELECT value FROM json_each(:keys))
