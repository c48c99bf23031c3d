-- The statements of operations/clock.py.

-- name: clock
-- Return the instant of this transaction: the given one in tests, otherwise the database's.
-- The first statement of every operation that writes a time or compares with one.
-- transaction: none
-- both
SELECT coalesce(:now::timestamptz, now) AS now FROM redrive_clock

-- name: wall
-- Return the time that the clock shows, a stored value, and the boot of the machine with the time since then.
-- The driver of SQLite passes the boot; a server's clock is never followed.
-- both
SELECT
    now,
    (SELECT value FROM redrive_meta WHERE key = :key::text) AS anchor,
    :boot::text AS boot,
    :ticks::bigint AS ticks
FROM redrive_clock

-- name: clock_move_workers
-- Move the heartbeats and leases of the registered workers by a time span.
-- The time of the database follows a clock that was set. A server's clock is never moved.
-- postgres
SELECT NULL FROM redrive_meta WHERE :step::interval IS NULL
-- sqlite
UPDATE redrive_workers SET
    heartbeat_at = heartbeat_at + :step,
    expires_at = expires_at + :step,
    late_at = late_at + :step,
    resumed_at = resumed_at + :step
WHERE stopped_at IS NULL

-- name: clock_move_jobs
-- Move the start and the end of the waits of unfinished jobs by a time span. Jobs that were due stay due.
-- As clock_move_workers.
-- postgres
SELECT NULL FROM redrive_meta WHERE :step::interval IS NULL AND :now::timestamptz IS NULL
-- sqlite
UPDATE redrive_jobs SET
    scheduled_at = scheduled_at + :step,
    latest_at = latest_at + :step,
    expires_at = expires_at + :step,
    started_at = started_at + :step,
    claimed_at = claimed_at + :step
WHERE id IN (
    SELECT id FROM redrive_jobs WHERE state = 'running'
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'waiting'
    UNION ALL
    SELECT id FROM redrive_jobs WHERE hold IS NOT NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NULL AND hold IS NULL AND scheduled_at > :now
    UNION ALL
    SELECT id FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND hold IS NULL AND scheduled_at > :now
)

-- name: clock_move_steps
-- Move the due times of steps by a time span.
-- As clock_move_workers.
-- postgres
SELECT NULL FROM redrive_meta WHERE :step::interval IS NULL
-- sqlite
UPDATE redrive_steps SET due_at = due_at + :step
WHERE due_at IS NOT NULL AND run_id IN (SELECT id FROM redrive_jobs WHERE state IN ('ready', 'running', 'waiting'))

-- name: clock_move_starts
-- Move the starts that count for rates by a time span.
-- As clock_move_workers.
-- postgres
SELECT NULL FROM redrive_meta WHERE :step::interval IS NULL
-- sqlite
UPDATE redrive_starts SET started_at = started_at + :step

-- name: clock_move_refreshes
-- Move the deadlines of the running attempts of refreshes by a time span.
-- As clock_move_workers.
-- postgres
SELECT NULL FROM redrive_meta WHERE :step::interval IS NULL
-- sqlite
UPDATE redrive_refreshes SET deadline_at = deadline_at + :step, sweep_at = sweep_at + :step
WHERE job_id IS NOT NULL

-- name: meta_put
-- Write a value of this database's metadata.
-- postgres
INSERT INTO redrive_meta (key, value)
SELECT key, value FROM unnest(:key::text[], :value::text[]) AS given (key, value) ORDER BY key
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE redrive_meta.value <> excluded.value
-- sqlite
INSERT INTO redrive_meta (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE redrive_meta.value <> excluded.value
