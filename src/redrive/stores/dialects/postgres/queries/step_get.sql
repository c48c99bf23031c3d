-- Return a recorded step.
-- Called by acquire, and by the operations that end a step at the gate.
SELECT
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
FROM redrive_steps
WHERE run_id = :run_id::bigint AND path = :path::text
