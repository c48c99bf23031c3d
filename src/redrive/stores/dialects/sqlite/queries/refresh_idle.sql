-- Return those of these items that run no attempt, without those that others have locked, and lock them.
-- Called by end_overdue, which has locked jobs already and must not wait.
SELECT
    schedule, key, NULL AS payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE schedule = :schedule AND key IN (SELECT value FROM json_each(:keys)) AND job_id IS NULL
