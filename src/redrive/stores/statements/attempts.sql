-- The statements of operations/attempts.py.

-- name: progress_put
-- Write progress reports, each if its lease is still current, and return these leases.
-- A report without details keeps the details of the one before.
-- many: rows
-- postgres
INSERT INTO redrive_progress AS said (job_id, lease_id, details, at)
SELECT job.id, job.lease_id, coalesce(given.details, old.details, 'null'), given.now
FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :details::text[], :now::timestamptz[]
) AS given (job_id, lease_id, details, now)
JOIN redrive_jobs AS job ON job.id = given.job_id AND job.lease_id = given.lease_id
LEFT JOIN LATERAL (SELECT details FROM redrive_progress WHERE job_id = given.job_id OFFSET 0) AS old ON true
WHERE job.id = ANY (:job_id)
ON CONFLICT (job_id) DO UPDATE SET lease_id = excluded.lease_id, details = excluded.details, at = excluded.at
RETURNING lease_id
-- sqlite
INSERT INTO redrive_progress (job_id, lease_id, details, at)
SELECT id, lease_id, coalesce(:details, 'null'), :now FROM redrive_jobs WHERE id = :job_id AND lease_id = :lease_id
ON CONFLICT (job_id) DO UPDATE SET
    lease_id = excluded.lease_id,
    details = coalesce(:details, redrive_progress.details),
    at = excluded.at
RETURNING lease_id

-- name: progress_of
-- Return the last progress report of one job, if there is one.
-- both
SELECT job_id, lease_id, details, at FROM redrive_progress WHERE job_id = :job_id::bigint

-- name: lease_current
-- Return a row if the lease of an attempt is current.
-- rows: counted
-- both
SELECT 1 FROM redrive_jobs WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint

-- name: open_attempt
-- Return the open attempt of one job, if it has this lease, and lock it.
-- For an external completion, which ends it. SQLite needs no lock.
-- both
SELECT
-- include attempt_columns
FROM redrive_jobs AS job
WHERE job.id = :job_id::bigint AND job.lease_id = :lease_id::bigint
FOR UPDATE

-- name: attempts_of
-- Return the history of one job, oldest first.
-- both
SELECT
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
FROM redrive_history
WHERE job_id = :job_id::bigint
ORDER BY lease_id

-- name: next_timeout
-- Return the instant, as clock does, when the first wait for an external completion is over, and the first expiry.
-- It reads the first entries of two indexes.
-- transaction: none
-- postgres
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (SELECT scheduled_at FROM redrive_jobs WHERE state = 'waiting' ORDER BY scheduled_at LIMIT 1) AS over_at,
    (
        SELECT expires_at FROM redrive_jobs
        WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL
        ORDER BY expires_at LIMIT 1
    ) AS expires_at
FROM redrive_clock AS clock
-- sqlite
SELECT
    coalesce(:now, (SELECT now FROM redrive_clock)) AS now,
    (SELECT scheduled_at FROM redrive_jobs WHERE state = 'waiting' ORDER BY scheduled_at LIMIT 1) AS over_at,
    (
        SELECT expires_at FROM redrive_jobs
        WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL
        ORDER BY expires_at LIMIT 1
    ) AS expires_at

-- name: overdue
-- Return attempts without an external completion in time.
-- Up to a budget, in the order of the index; locked rows are left out.
-- both
SELECT
-- include attempt_columns
FROM redrive_jobs AS job
WHERE job.state = 'waiting' AND job.scheduled_at <= :now::timestamptz
ORDER BY job.scheduled_at
LIMIT :budget::bigint
FOR UPDATE SKIP LOCKED

-- name: expire
-- Cancel jobs that have not started in time, up to a budget, and return them; locked rows are left out.
-- postgres
UPDATE redrive_jobs AS job SET
    state = 'cancelled',
    hold = NULL,
    note = :note::text,
    reason = :reason::text,
    finished_at = :now::timestamptz
WHERE id = ANY (ARRAY(
    SELECT id FROM redrive_jobs
    WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL AND expires_at <= :now
    ORDER BY expires_at
    LIMIT :budget::bigint
    FOR UPDATE SKIP LOCKED
))
RETURNING
-- include job_columns
-- sqlite
UPDATE redrive_jobs SET
    state = 'cancelled',
    hold = NULL,
    note = :note,
    reason = :reason,
    finished_at = :now
WHERE id IN (
    SELECT id FROM redrive_jobs
    WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL AND expires_at <= :now
    ORDER BY expires_at
    LIMIT :budget
)
RETURNING
-- include job_columns
