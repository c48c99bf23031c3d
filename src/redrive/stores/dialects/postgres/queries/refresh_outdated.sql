-- Return items of a refresh with times that another policy than its present one has set.
-- Called by replan.
SELECT
    schedule, key, NULL::bytea AS payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE schedule = :schedule AND own IS NULL AND timing <> :timing AND key = ANY (ARRAY(
    (
        SELECT key FROM redrive_refreshes
        WHERE own IS NULL AND schedule = :schedule AND timing < :timing
        LIMIT :count::bigint
    )
    UNION ALL
    (
        SELECT key FROM redrive_refreshes
        WHERE own IS NULL AND schedule = :schedule AND timing > :timing
        LIMIT :count::bigint
    )
))
LIMIT :count::bigint
FOR UPDATE SKIP LOCKED
