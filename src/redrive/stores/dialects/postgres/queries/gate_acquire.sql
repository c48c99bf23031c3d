-- Give the caller a step of a job, if it is new, or due for its next try, or if the lease of its last caller has ended.
-- Called by acquire. Of any number of callers at the same time one receives the row.
INSERT INTO redrive_steps (run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at)
SELECT job.id, :path::text, 'step', :path, 'running', :lease_id::bigint, :now::timestamptz, interval '0', 0, :until::timestamptz
FROM redrive_jobs AS job
WHERE job.id = :run_id::bigint AND job.state IN ('ready', 'running', 'waiting')
ON CONFLICT (run_id, path) DO UPDATE SET
    outcome = 'running', lease_id = excluded.lease_id, at = excluded.at, due_at = excluded.due_at, error = NULL
WHERE redrive_steps.outcome IN ('waiting', 'running') AND redrive_steps.due_at <= :now
RETURNING
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
