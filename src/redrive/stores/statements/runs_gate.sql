-- The statements of operations/runs/gate.py.

-- name: gate_acquire
-- Give the caller a step of a job, if it is new, or due for its next try, or if the lease of its last caller has
-- ended.
-- Of any number of callers at the same time one receives the row.
-- postgres
INSERT INTO redrive_steps (run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at)
SELECT job.id, :path::text, 'step', :path, 'running', :lease_id::bigint, :now::timestamptz, interval '0', 0, :until::timestamptz
FROM redrive_jobs AS job
WHERE job.id = :run_id::bigint AND job.state IN ('ready', 'running', 'waiting')
ON CONFLICT (run_id, path) DO UPDATE SET
    outcome = 'running', lease_id = excluded.lease_id, at = excluded.at, due_at = excluded.due_at, error = NULL
WHERE redrive_steps.outcome IN ('waiting', 'running') AND redrive_steps.due_at <= :now
RETURNING
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref, seq
-- sqlite
INSERT INTO redrive_steps (run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at)
SELECT id, :path, 'step', :path, 'running', :lease_id, :now, 0, 0, :until
FROM redrive_jobs
WHERE id = :run_id AND state IN ('ready', 'running', 'waiting')
ON CONFLICT (run_id, path) DO UPDATE SET
    outcome = 'running', lease_id = excluded.lease_id, at = excluded.at, due_at = excluded.due_at, error = NULL
WHERE redrive_steps.outcome IN ('waiting', 'running') AND redrive_steps.due_at <= :now
RETURNING
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref, seq

-- name: gate_end
-- Write the end of a step at the gate, if the lease of the caller is current, and return its path.
-- both
UPDATE redrive_steps SET
    outcome = :outcome::text, at = :at::timestamptz, took = :took::interval, tries = :tries::integer, due_at = :due_at::timestamptz,
    result = :result::bytea, error = :error::text, history = :history::text
WHERE run_id = :run_id::bigint AND path = :path::text AND outcome = 'running' AND lease_id = :lease_id::bigint
RETURNING path
