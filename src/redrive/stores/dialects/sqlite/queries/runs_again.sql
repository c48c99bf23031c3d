-- Withdraw the requests to cancel or pause these runs.
-- Called by redrive and retry, when the jobs of the runs start again.
UPDATE redrive_runs SET
    cancel_at = NULL, cancel_why = NULL, paused_at = NULL, paused_until = NULL, paused_why = NULL
WHERE job_id IN (SELECT value FROM json_each(:ids)) AND (cancel_at IS NOT NULL OR paused_at IS NOT NULL)
