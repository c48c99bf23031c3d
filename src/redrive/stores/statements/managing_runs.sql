-- The statements of operations/managing_runs.py.

-- name: runs_floor
-- Return the oldest of the newest runs before a job, a limited number of them; NULL if there are no more.
-- both
SELECT job_id FROM redrive_runs
WHERE job_id < :before_id::bigint
ORDER BY job_id DESC
LIMIT 1 OFFSET :budget::bigint

-- name: runs_select
-- Return runs, newest first, after the filter.
-- both
SELECT
-- include run_columns
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE (:workflow::text IS NULL OR run.workflow = :workflow)
    AND (:state::text IS NULL OR job.state = :state)
    AND (:hold::text IS NULL OR job.hold = :hold)
    AND (:parent_id::bigint IS NULL OR run.parent_id = :parent_id)
    AND run.job_id < coalesce(:before_id::bigint, 9223372036854775807)
    AND run.job_id >= coalesce(:from_id::bigint, 0)
ORDER BY run.job_id DESC
LIMIT :count::bigint

-- name: runs_family
-- Return a run, and the runs that it has called, newest first.
-- both
SELECT
-- include run_columns
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.workflow = :workflow::text AND run.id = :id::text
UNION ALL
SELECT * FROM (
    SELECT
-- include run_columns
    FROM redrive_runs AS run
    JOIN redrive_jobs AS job ON job.id = run.job_id
    WHERE run.parent_id = (SELECT job_id FROM redrive_runs WHERE workflow = :workflow AND id = :id)
    ORDER BY run.job_id DESC
    LIMIT :count::bigint
) AS child

-- name: steps_latest
-- Return the latest steps of a run.
-- transaction: none
-- both
SELECT
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref, seq
FROM redrive_steps
WHERE run_id = :run_id::bigint
ORDER BY at DESC, path DESC
LIMIT :count::bigint

-- name: signals_of
-- Return the first signals of a run in their order; without those of the ends of child runs.
-- transaction: none
-- both
SELECT id, run_id, name, key, payload, at, path FROM redrive_signals
WHERE run_id = :run_id::bigint AND name <> :child::text
ORDER BY id
LIMIT :count::bigint

-- name: steps_retrying
-- Return the steps that wait for their next try, by its time.
-- both
SELECT
    step.run_id, job.task, run.id, step.path, step.name, step.tries, step.due_at, step.at, step.error
FROM redrive_steps AS step
JOIN redrive_jobs AS job ON job.id = step.run_id
LEFT JOIN redrive_runs AS run ON run.job_id = step.run_id
WHERE step.outcome = 'waiting' AND step.tries > 0
    AND (:task::text IS NULL OR job.task = :task)
    AND (:before::timestamptz IS NULL OR step.due_at <= :before)
ORDER BY step.due_at, step.run_id
LIMIT :count::bigint

-- name: run_pause
-- Pause a run.
-- both
UPDATE redrive_runs SET paused_at = coalesce(paused_at, :now::timestamptz), paused_until = :until::timestamptz, paused_why = :why::text
WHERE job_id = :id::bigint

-- name: run_set_aside
-- Keep a run that is due or parked from being claimed until the end of its pause. A retry or a delay goes on.
-- both
UPDATE redrive_jobs SET hold = 'paused', note = :note::text, scheduled_at = :until::timestamptz
WHERE id = :id::bigint AND state = 'ready' AND (hold IS NULL OR hold IN ('parked', 'paused'))

-- name: run_resume
-- End the pause of a run.
-- both
UPDATE redrive_runs SET paused_at = NULL, paused_until = NULL, paused_why = NULL
WHERE job_id = :id::bigint AND paused_at IS NOT NULL
RETURNING job_id

-- name: runs_unheld
-- Make the held runs of these workflows due now.
-- A worker has started with the code of these workflows.
-- postgres
UPDATE redrive_jobs SET scheduled_at = least(scheduled_at, :now::timestamptz)
WHERE hold = 'held' AND state = 'ready' AND task = ANY (:tasks::text[])
RETURNING id
-- sqlite
UPDATE redrive_jobs SET scheduled_at = min(scheduled_at, :now)
WHERE hold = 'held' AND state = 'ready' AND task IN (SELECT value FROM json_each(:tasks))
RETURNING id

-- name: step_supply
-- Replace the failure of a step or of an undo by a value, and return its path.
-- both
UPDATE redrive_steps SET outcome = 'ok', result = :result::bytea, error = NULL, due_at = NULL, at = :now::timestamptz
WHERE run_id = :run_id::bigint AND path = :path::text
    AND (outcome = 'failed' OR (outcome = 'waiting' AND kind IN ('step', 'call', 'undo')))
RETURNING path
