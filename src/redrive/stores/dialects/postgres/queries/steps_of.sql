-- Return the recorded steps of these runs.
-- Called by claim, timeline and fork.
-- transaction: none
SELECT
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
FROM redrive_steps
WHERE run_id = ANY (:ids::bigint[])
