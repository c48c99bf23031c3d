-- The statements of operations/runs/calls.py.

-- name: run_ancestors
-- Return a run and the runs that wait for it, directly or not.
-- postgres
WITH RECURSIVE above AS (
    SELECT job_id, parent_id FROM redrive_runs WHERE job_id = :id
    UNION
    SELECT parent.job_id, parent.parent_id
    FROM above
    CROSS JOIN LATERAL (SELECT job_id, parent_id FROM redrive_runs WHERE job_id = above.parent_id OFFSET 0) AS parent
)
SELECT
    run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
    run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
    NULL AS held, NULL AS held_at
FROM above CROSS JOIN LATERAL (SELECT * FROM redrive_runs WHERE job_id = above.job_id OFFSET 0) AS run
-- sqlite
WITH RECURSIVE above AS (
    SELECT job_id, parent_id FROM redrive_runs WHERE job_id = :id
    UNION
    SELECT parent.job_id, parent.parent_id FROM above JOIN redrive_runs AS parent ON parent.job_id = above.parent_id
)
SELECT
    run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
    run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
    NULL AS held, NULL AS held_at
FROM above JOIN redrive_runs AS run ON run.job_id = above.job_id

-- name: step_get
-- Return a recorded step.
-- both
SELECT
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref, seq
FROM redrive_steps
WHERE run_id = :run_id::bigint AND path = :path::text
