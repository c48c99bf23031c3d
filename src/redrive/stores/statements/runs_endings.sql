-- The statements of operations/runs/endings.py.

-- name: runs_standing
-- Return what the end of these runs depends on.
-- both
SELECT
    run.job_id,
    run.cancel_at,
    EXISTS (SELECT FROM redrive_steps WHERE run_id = run.job_id AND kind = 'step' AND (outcome = 'ok' OR result IS NOT NULL)) AS has_steps,
    EXISTS (SELECT FROM redrive_steps WHERE run_id = run.job_id AND path = :mark::text) AS undoing
FROM redrive_runs AS run
WHERE run.job_id = ANY (:ids::bigint[])

-- name: undos_put
-- Write rows about the undos of runs that no worker executes, each unless it is recorded as ended.
-- many: rows
-- postgres
INSERT INTO redrive_steps (run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, error)
SELECT run_id, path, kind, name, outcome, 0, at, took, tries, due_at, error
FROM unnest(
    :run_id::bigint[], :path::text[], :kind::text[], :name::text[], :outcome::text[], :now::timestamptz[],
    :took::interval[], :tries::integer[], :due_at::timestamptz[], :error::text[]
) AS given (run_id, path, kind, name, outcome, at, took, tries, due_at, error)
ON CONFLICT (run_id, path) DO UPDATE SET
    outcome = excluded.outcome,
    at = excluded.at,
    due_at = excluded.due_at,
    error = excluded.error
WHERE redrive_steps.outcome = 'waiting'
-- sqlite
INSERT INTO redrive_steps (run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, error)
VALUES (:run_id, :path, :kind, :name, :outcome, 0, :now, :took, :tries, :due_at, :error)
ON CONFLICT (run_id, path) DO UPDATE SET
    outcome = excluded.outcome,
    at = excluded.at,
    due_at = excluded.due_at,
    error = excluded.error
WHERE redrive_steps.outcome = 'waiting'
