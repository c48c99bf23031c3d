-- Copy recorded steps of one run to another.
-- Called by fork.
INSERT INTO redrive_steps (
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
)
SELECT :fork_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
FROM redrive_steps
WHERE run_id = :run_id AND path IN (SELECT value FROM json_each(:paths))
