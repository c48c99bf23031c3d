-- Request the cancellation of the runs that these runs have called, and whose calls have ended.
-- Called by drop_calls. Open calls are given as job of the caller, colon and path.
UPDATE redrive_runs SET
    cancel_at = :now,
    cancel_why = 'its call in ' || caller.workflow || ' ' || caller.id || ' (' || redrive_runs.parent_path || ') was dropped: '
        || :why,
    paused_at = NULL, paused_until = NULL, paused_why = NULL
FROM redrive_runs AS caller, redrive_jobs AS job
WHERE redrive_runs.parent_id IN (SELECT value FROM json_each(:ids)) AND redrive_runs.cancel_at IS NULL
    AND redrive_runs.parent_id || ':' || redrive_runs.parent_path NOT IN (SELECT value FROM json_each(:open))
    AND caller.job_id = redrive_runs.parent_id AND job.id = redrive_runs.job_id AND job.state IN ('ready', 'running', 'waiting')
