-- Write the success of these attempts into their items, if they are the present ones, and return these items.
-- Called when jobs succeed, for items without policies of their own. PostgreSQL locks them in the common order.
UPDATE redrive_refreshes SET
    timing = :timing,
    refresh_at = :refresh_at,
    planned_at = :planned_at,
    completed = :completed,
    deadline_at = NULL,
    due_at = NULL,
    failing_since = NULL,
    succeeded_at = :succeeded_at,
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
