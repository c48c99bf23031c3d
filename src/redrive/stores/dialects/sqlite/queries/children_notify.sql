-- Send a signal to called runs whose calls have ended, so that they are due for what children_cancel requests.
-- Called by drop_calls, before children_cancel. Open calls are given as job of the caller, colon and path.
INSERT INTO redrive_signals (run_id, name, key, at, pending)
SELECT child.job_id, :name, 'cancel.' || :now, :now, 1
FROM redrive_runs AS child
JOIN redrive_jobs AS job ON job.id = child.job_id
WHERE child.parent_id IN (SELECT value FROM json_each(:ids)) AND child.cancel_at IS NULL
    AND child.parent_id || ':' || child.parent_path NOT IN (SELECT value FROM json_each(:open))
    AND job.state IN ('ready', 'running', 'waiting')
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
