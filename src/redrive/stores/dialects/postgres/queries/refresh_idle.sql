-- Return those of these items that run no attempt, without those that others have locked, and lock them.
-- Called by end_overdue, which has locked jobs already and must not wait.
SELECT thing.*
FROM unnest(:keys::text[]) AS given (key)
CROSS JOIN LATERAL (
    SELECT
        schedule, key, NULL::bytea AS payload,
-- include refresh_columns.sql
    FROM redrive_refreshes
    WHERE schedule = :schedule AND key = given.key AND job_id IS NULL
    FOR UPDATE SKIP LOCKED
) AS thing
