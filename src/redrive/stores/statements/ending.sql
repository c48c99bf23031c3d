-- The statements of operations/ending.py.

-- name: run_family
-- Return a run and the runs that it started, directly or not, as far as they have not ended.
-- postgres
WITH RECURSIVE family AS (
    SELECT job_id FROM redrive_runs WHERE job_id = :id::bigint
    UNION
    SELECT child.job_id
    FROM family
    CROSS JOIN LATERAL (SELECT job_id FROM redrive_runs WHERE parent_id = family.job_id OFFSET 0) AS child
)
SELECT job.id
FROM family
CROSS JOIN LATERAL (
    SELECT id FROM redrive_jobs WHERE id = family.job_id AND state IN ('ready', 'running', 'waiting') OFFSET 0
) AS job
ORDER BY job.id
-- sqlite
WITH RECURSIVE family AS (
    SELECT job_id FROM redrive_runs WHERE job_id = :id
    UNION
    SELECT child.job_id
    FROM family
    JOIN redrive_runs AS parent ON parent.job_id = family.job_id
    JOIN redrive_runs AS child ON child.parent_id = parent.job_id
)
SELECT job.id FROM family JOIN redrive_jobs AS job ON job.id = family.job_id
WHERE job.state IN ('ready', 'running', 'waiting')
ORDER BY job.id

-- name: runs_cancel
-- Request the cancellation of runs, and let paused ones go on to receive it.
-- An earlier request keeps its time and its reason.
-- both
UPDATE redrive_runs SET
    cancel_at = coalesce(cancel_at, :now::timestamptz), cancel_why = coalesce(cancel_why, :why::text),
    paused_at = NULL, paused_until = NULL, paused_why = NULL
WHERE job_id = ANY (:ids::bigint[])

-- name: run_recall
-- Take a run back from its worker, which loses its lease, so that another pass begins with its undos.
-- both
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'parked',
    note = :note::text,
    scheduled_at = :now::timestamptz,
    attempt = CASE WHEN state = 'running' THEN attempt - 1 ELSE attempt END,
    crashes = 0,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL
WHERE id = :id::bigint AND state IN ('ready', 'running')
RETURNING id
