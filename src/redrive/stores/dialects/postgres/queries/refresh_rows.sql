-- Return these items of a refresh, and lock them until the transaction ends.
-- Called by every operation that moves items by key. SQLite needs no lock.
SELECT thing.*
FROM (SELECT key FROM unnest(:keys::text[]) AS key ORDER BY key) AS given
CROSS JOIN LATERAL (
    SELECT
        schedule, key, NULL::bytea AS payload,
-- include refresh_columns.sql
    FROM redrive_refreshes
    WHERE schedule = :schedule AND key = given.key
    FOR UPDATE
) AS thing
