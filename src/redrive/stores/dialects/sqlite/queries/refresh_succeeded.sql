-- Writes that things were refreshed by these attempts, if they are the present ones, and answers which things these are.
-- Called where jobs succeed; things without policies of their own stand alike then.
UPDATE redrive_refreshes SET
    timing = :timing,
    refresh_at = :refresh_at,
    planned_at = :planned_at,
    completed = :completed,
    deadline_at = NULL,
    due_at = NULL,
    failing_since = NULL,
    sweep_at = NULL,
    attempt_no = 0,
    attempts_since_success = 0,
    job_id = NULL
WHERE schedule = :schedule
    AND key IN (SELECT value FROM json_each(:keys))
    AND job_id IN (SELECT value FROM json_each(:job_ids))
    AND own IS NULL
    AND started_at < :now
RETURNING key
