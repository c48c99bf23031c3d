-- Return items of a refresh that are due, the earliest first, without those that others have locked.
-- Called by start_due.
SELECT
    schedule, key, payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE schedule = :schedule AND refresh_at <= :now AND job_id IS NULL AND NOT paused
ORDER BY refresh_at
LIMIT :count
