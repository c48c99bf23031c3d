-- Return items of a refresh with times that another policy than its present one has set.
-- Called by replan.
SELECT
    schedule, key, NULL AS payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE schedule = :schedule AND own IS NULL AND timing <> :timing AND key IN (
    SELECT key FROM (
        SELECT key FROM redrive_refreshes
        WHERE own IS NULL AND schedule = :schedule AND timing < :timing
        LIMIT :count
    ) AS older
    UNION ALL
    SELECT key FROM (
        SELECT key FROM redrive_refreshes
        WHERE own IS NULL AND schedule = :schedule AND timing > :timing
        LIMIT :count
    ) AS newer
)
LIMIT :count
