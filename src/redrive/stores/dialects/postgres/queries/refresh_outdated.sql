-- Return items of a refresh with times that another policy than its present one has set.
-- Called by replan.
SELECT thing.*
FROM (
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
) AS given
CROSS JOIN LATERAL (
    SELECT
        schedule, key, NULL::bytea AS payload,
-- include refresh_columns.sql
    FROM redrive_refreshes
    -- As in settle_succeeded: the planner must not use the index of items by timing.
    WHERE schedule = :schedule AND key = given.key AND coalesce(own, '') = '' AND timing <> :timing
    FOR UPDATE SKIP LOCKED
) AS thing
LIMIT :count::bigint
