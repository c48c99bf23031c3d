-- Return those of these items that run no attempt, without those that others have locked, and lock them.
-- Called by end_overdue, which has locked jobs already and must not wait.
SELECT
    schedule, key, NULL::bytea AS payload,
-- include refresh_columns.sql
FROM redrive_refreshes
WHERE schedule = :schedule AND key = ANY (:keys::text[]) AND job_id IS NULL
FOR UPDATE SKIP LOCKED
