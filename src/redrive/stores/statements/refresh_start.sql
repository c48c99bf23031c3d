-- The statements of operations/refresh/start.py.

-- name: refresh_due
-- Return items of a refresh that are due, the earliest first, without those that others have locked.
-- postgres
SELECT
    schedule, key, payload,
-- include refresh_columns
FROM redrive_refreshes
WHERE schedule = :schedule AND refresh_at IS NOT NULL AND refresh_at <= :now::timestamptz
    AND job_id IS NULL AND NOT paused
ORDER BY refresh_at
LIMIT :count::bigint
FOR UPDATE SKIP LOCKED
-- sqlite
SELECT
    schedule, key, payload,
-- include refresh_columns
FROM redrive_refreshes
WHERE schedule = :schedule AND refresh_at <= :now AND job_id IS NULL AND NOT paused
ORDER BY refresh_at
LIMIT :count

-- name: refresh_outdated
-- Return items of a refresh with times that another policy than its present one has set.
-- postgres
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
-- include refresh_columns
    FROM redrive_refreshes
    -- As in settle_succeeded: the planner must not use the index of items by timing.
    WHERE schedule = :schedule AND key = given.key AND coalesce(own, '') = '' AND timing <> :timing
    FOR UPDATE SKIP LOCKED
) AS thing
LIMIT :count::bigint
-- sqlite
SELECT
    schedule, key, NULL AS payload,
-- include refresh_columns
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
