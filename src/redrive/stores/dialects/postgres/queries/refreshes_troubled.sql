-- Return items of a refresh that failed last time or were given up, by key.
-- Called by select.
SELECT
    schedule, key, NULL::bytea AS payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE schedule = :schedule AND key > :after
    AND (disabled_until_update OR attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL))
ORDER BY key
LIMIT :count::bigint
