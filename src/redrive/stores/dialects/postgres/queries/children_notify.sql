-- Send a signal to called runs whose calls have ended, so that they are due for what children_cancel requests.
-- Called by drop_calls, before children_cancel. Open calls are given as job of the caller, colon and path.
INSERT INTO redrive_signals (run_id, name, key, at, pending)
SELECT child.job_id, :name::text, 'cancel.' || :now::timestamptz, :now::timestamptz, true
FROM redrive_runs AS child
WHERE child.parent_id = ANY (:ids::bigint[]) AND child.cancel_at IS NULL
    AND child.parent_id || ':' || child.parent_path <> ALL (:open::text[])
    AND EXISTS (
        SELECT FROM redrive_jobs WHERE id = child.job_id AND state IN ('ready', 'running', 'waiting') OFFSET 0
    )
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
