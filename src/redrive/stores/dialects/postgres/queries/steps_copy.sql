-- Copy recorded steps of one run to another.
-- Called by fork.
INSERT INTO redrive_steps (
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
)
SELECT
    :fork_id::bigint, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
FROM redrive_steps
WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[])
