-- Return the latest steps of a run.
-- Called by timeline.
-- transaction: none
SELECT
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
FROM redrive_steps
WHERE run_id = :run_id::bigint
ORDER BY at DESC, path DESC
LIMIT :count::bigint
