-- The statements of operations/retention.py.

-- name: span
-- Return the smallest id of a job above a given one, and the largest id; NULL if there is none.
-- Ids of deleted jobs are left out.
-- both
SELECT
    (SELECT min(id) FROM redrive_jobs WHERE id > :after_id::bigint) AS first,
    (SELECT max(id) FROM redrive_jobs) AS last

-- name: prunable
-- Return the jobs of a stride that ended, were kept as long as required, and have no catch jobs any more.
-- The stored time of a task takes precedence over the caller's, and an empty text means for ever.
-- postgres
SELECT job.id
FROM redrive_jobs AS job
LEFT JOIN redrive_meta AS kept ON kept.key = 'keep:' || job.task
LEFT JOIN redrive_meta AS kept_dead ON kept_dead.key = 'keep_dead:' || job.task
LEFT JOIN redrive_meta AS kept_cancelled ON kept_cancelled.key = 'keep_cancelled:' || job.task
WHERE job.id > :after_id::bigint
    AND job.id <= :until::bigint
    AND job.state IN ('succeeded', 'cancelled', 'dead')
    AND CASE
        WHEN job.state = 'dead' AND job.caught_at IS NULL THEN
            job.finished_at + CASE
                WHEN kept_dead.key IS NULL THEN :keep_dead::interval
                ELSE nullif(kept_dead.value, '')::bigint * interval '1 microsecond'
            END
        WHEN job.state = 'cancelled' THEN
            job.finished_at + CASE
                WHEN kept_cancelled.key IS NULL THEN :keep_cancelled::interval
                ELSE nullif(kept_cancelled.value, '')::bigint * interval '1 microsecond'
            END
        ELSE
            coalesce(job.caught_at, job.finished_at) + CASE
                WHEN kept.key IS NULL THEN :keep::interval
                ELSE nullif(kept.value, '')::bigint * interval '1 microsecond'
            END
    END <= :now::timestamptz
    AND NOT EXISTS (SELECT FROM redrive_jobs AS child WHERE child.parent_id = job.id)
    -- a run reads the results of the runs that it has called
    AND NOT EXISTS (
        SELECT FROM redrive_runs AS called
        JOIN redrive_jobs AS caller ON caller.id = called.parent_id
        WHERE called.job_id = job.id AND caller.state IN ('ready', 'running', 'waiting')
    )
ORDER BY job.id
-- sqlite
SELECT job.id
FROM redrive_jobs AS job
LEFT JOIN redrive_meta AS kept ON kept.key = 'keep:' || job.task
LEFT JOIN redrive_meta AS kept_dead ON kept_dead.key = 'keep_dead:' || job.task
LEFT JOIN redrive_meta AS kept_cancelled ON kept_cancelled.key = 'keep_cancelled:' || job.task
WHERE job.id > :after_id
    AND job.id <= :until
    AND job.state IN ('succeeded', 'cancelled', 'dead')
    AND CASE
        WHEN job.state = 'dead' AND job.caught_at IS NULL THEN
            job.finished_at
            + CASE WHEN kept_dead.key IS NULL THEN :keep_dead ELSE CAST(nullif(kept_dead.value, '') AS INTEGER) END
        WHEN job.state = 'cancelled' THEN
            job.finished_at + CASE
                WHEN kept_cancelled.key IS NULL THEN :keep_cancelled
                ELSE CAST(nullif(kept_cancelled.value, '') AS INTEGER)
            END
        ELSE
            coalesce(job.caught_at, job.finished_at)
            + CASE WHEN kept.key IS NULL THEN :keep ELSE CAST(nullif(kept.value, '') AS INTEGER) END
    END <= :now
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs AS child WHERE child.parent_id = job.id)
    -- a run reads the results of the runs that it has called
    AND NOT EXISTS (
        SELECT 1 FROM redrive_runs AS called
        JOIN redrive_jobs AS caller ON caller.id = called.parent_id
        WHERE called.job_id = job.id AND caller.state IN ('ready', 'running', 'waiting')
    )
ORDER BY job.id

-- name: policies_of
-- Return the policies of the jobs of a stride.
-- both
SELECT DISTINCT policy FROM redrive_jobs WHERE id > :after_id::bigint AND id <= :until::bigint

-- name: keep_shortest
-- Return the shortest of the stored retention times, in microseconds; NULL if there is none, or all are for ever.
-- both
SELECT min(CAST(nullif(value, '') AS bigint)) FROM redrive_meta WHERE key LIKE 'keep%'

-- name: enqueued_before
-- Return a row if a job of a stride was enqueued before an instant.
-- both
SELECT id FROM redrive_jobs
WHERE id > :after_id::bigint AND id <= :until::bigint AND enqueued_at <= :before::timestamptz
LIMIT 1

-- name: prune
-- Delete jobs that had ended at the survey, with all their rows, and return them.
-- postgres
DELETE FROM redrive_jobs AS job
WHERE job.id = ANY (:ids::bigint[])
    AND job.state IN ('succeeded', 'dead', 'cancelled')
    AND job.finished_at <= :at::timestamptz
    AND NOT EXISTS (SELECT FROM redrive_jobs AS child WHERE child.parent_id = job.id OFFSET 0)
RETURNING job.id
-- sqlite
DELETE FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids))
    AND state IN ('succeeded', 'dead', 'cancelled')
    AND finished_at <= :at
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs AS child WHERE child.parent_id = redrive_jobs.id)
RETURNING id

-- name: policies
-- Return the digests of the policies that are not retired, and of those that were retired before this instant.
-- postgres
SELECT DISTINCT digest FROM redrive_policies WHERE retired_at IS NULL OR retired_at <= :before::timestamptz
-- sqlite
SELECT digest FROM redrive_policies WHERE retired_at IS NULL OR retired_at <= :before

-- name: policy_forget
-- Delete the rows of a policy that were retired before this instant, unless a job has it; return a row for each.
-- An enqueue that read such a row before it was retired has committed its job long ago.
-- postgres
DELETE FROM redrive_policies AS known
WHERE digest = :digest AND retired_at <= :before::timestamptz
    AND NOT EXISTS (SELECT FROM redrive_jobs WHERE policy = known.digest)
RETURNING digest
-- sqlite
DELETE FROM redrive_policies
WHERE digest = :digest AND retired_at <= :before
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs WHERE policy = redrive_policies.digest)
RETURNING digest

-- name: policy_retire
-- Retire the rows of a policy that no job has: the next enqueue with this policy inserts it again.
-- Rows of transactions that have not ended are not visible, and stay as they are.
-- postgres
UPDATE redrive_policies AS known SET retired_at = :now::timestamptz
WHERE digest = :digest AND retired_at IS NULL AND NOT EXISTS (SELECT FROM redrive_jobs WHERE policy = known.digest)
-- sqlite
UPDATE redrive_policies SET retired_at = :now
WHERE digest = :digest AND retired_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs WHERE policy = redrive_policies.digest)

-- name: workers_forget
-- Delete workers that left long ago and hold no lease.
-- postgres
DELETE FROM redrive_workers AS worker
WHERE worker.stopped_at <= :before::timestamptz
    AND NOT EXISTS (SELECT FROM redrive_jobs WHERE state = 'running' AND worker_id = worker.id OFFSET 0)
-- sqlite
DELETE FROM redrive_workers
WHERE stopped_at <= :before
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs WHERE state = 'running' AND worker_id = redrive_workers.id)

-- name: catches_empty
-- Delete all catch jobs; Turso refuses to delete the jobs that they catch in the same statement.
-- both
DELETE FROM redrive_jobs WHERE parent_id IS NOT NULL

-- name: jobs_empty
-- Delete all jobs, with all their rows.
-- both
DELETE FROM redrive_jobs

-- name: occurrences_empty
-- Delete the history of all crons.
-- both
DELETE FROM redrive_occurrences

-- name: refreshes_empty
-- Delete all tracked items.
-- both
DELETE FROM redrive_refreshes

-- name: schedules_empty
-- Delete all schedules; the next worker declares those of its code again.
-- both
DELETE FROM redrive_schedules

-- name: queues_empty
-- Delete the settings of all queues, with the starts that their rate limits count.
-- both
DELETE FROM redrive_queues
