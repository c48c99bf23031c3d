-- The statements of operations/runs/start.py.

-- name: run_insert
-- Insert runs, each unless its workflow has a run with its id, and return the jobs of the new ones.
-- Before the jobs are inserted.
-- many: rows
-- postgres
INSERT INTO redrive_runs (job_id, workflow, id, version, digest, parent_id, parent_path, forked_from, set_values)
SELECT * FROM unnest(
    :job_id::bigint[], :workflow::text[], :id::text[], :version::integer[], :digest::bigint[], :parent_id::bigint[],
    :parent_path::text[], :forked_from::bigint[], :set_values::bytea[]
)
ON CONFLICT (workflow, id) DO NOTHING
RETURNING job_id
-- sqlite
INSERT INTO redrive_runs (job_id, workflow, id, version, digest, parent_id, parent_path, forked_from, set_values)
VALUES (:job_id, :workflow, :id, :version, :digest, :parent_id, :parent_path, :forked_from, :set_values)
ON CONFLICT (workflow, id) DO NOTHING
RETURNING job_id

-- fragment: run_columns
-- The fields of a run, of redrive_runs AS run and redrive_jobs AS job.
-- both
    run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
    run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
    CASE WHEN job.hold = 'held' THEN job.note END AS held,
    CASE WHEN job.hold = 'held' THEN job.unreadable_at END AS held_at

-- name: runs_named
-- Return the runs of a workflow with these ids.
-- postgres
SELECT
-- include run_columns
FROM (SELECT DISTINCT id FROM unnest(:ids::text[]) AS id) AS given
CROSS JOIN LATERAL (SELECT * FROM redrive_runs WHERE workflow = :workflow::text AND id = given.id OFFSET 0) AS run
CROSS JOIN LATERAL (SELECT hold, note, unreadable_at FROM redrive_jobs WHERE id = run.job_id OFFSET 0) AS job
-- sqlite
SELECT
-- include run_columns
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.workflow = :workflow AND run.id IN (SELECT value FROM json_each(:ids))

-- name: steps_copy
-- Copy recorded steps of one run to another.
-- both
INSERT INTO redrive_steps (
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
)
SELECT
    :fork_id::bigint, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
FROM redrive_steps
WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[])
