-- The statements of operations/runs/waits.py.

-- name: signal_insert
-- Insert a signal of a run, unless it has one with this name and key, and return its number.
-- It locks no run, because it may be a part of a transaction that stays open.
-- postgres
INSERT INTO redrive_signals (run_id, name, key, payload, at, pending)
VALUES (:run_id::bigint, :name::text, :key::text, :payload::bytea, :now::timestamptz, true)
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
RETURNING id
-- sqlite
INSERT INTO redrive_signals (run_id, name, key, payload, at, pending)
VALUES (:run_id, :name, :key, :payload, :now, 1)
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
RETURNING id

-- name: emit_insert
-- Insert an emitted value, unless the name has one, and return the name.
-- It locks no run, because it may be a part of a transaction that stays open.
-- postgres
INSERT INTO redrive_emits (name, payload, at, expires_at, pending)
VALUES (:name::text, :payload::bytea, :now::timestamptz, :expires_at::timestamptz, true)
ON CONFLICT (name) DO NOTHING
RETURNING name
-- sqlite
INSERT INTO redrive_emits (name, payload, at, expires_at, pending)
VALUES (:name, :payload, :now, :expires_at, 1)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: child_ended
-- Send the signal of the end of these runs to the runs that wait for them.
-- In the transaction that ends them. It locks no run.
-- postgres
INSERT INTO redrive_signals (run_id, name, key, at, pending)
SELECT parent_id, :name::text, job_id::text || '.' || :now::timestamptz, :now::timestamptz, true
FROM redrive_runs
-- As in settle_succeeded: the planner must not use the index of called runs.
WHERE job_id = ANY (:ids::bigint[]) AND coalesce(parent_id, 0) <> 0
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
-- sqlite
INSERT INTO redrive_signals (run_id, name, key, at, pending)
SELECT parent_id, :name, job_id || '.' || :now, :now, 1
FROM redrive_runs
WHERE job_id IN (SELECT value FROM json_each(:ids)) AND parent_id IS NOT NULL
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING

-- name: wakes_pending
-- Return whether a signal or an emitted value was not offered to its runs yet.
-- transaction: none
-- both
SELECT EXISTS (SELECT FROM redrive_signals WHERE pending) OR EXISTS (SELECT FROM redrive_emits WHERE pending)

-- name: signals_fresh
-- Return pending signals of runs that do not run, and whether each announces a cancellation, and lock these runs.
-- postgres
SELECT signal.id, signal.run_id, signal.name = :child::text AND signal.key LIKE 'cancel.%' AS cancels
    -- A signal of a running run stays pending: the transaction that parks the run may have looked before the signal was
    -- committed, and a later call finds it.
FROM redrive_signals AS signal
CROSS JOIN LATERAL (
    SELECT id FROM redrive_jobs WHERE id = signal.run_id AND state <> 'running' FOR UPDATE SKIP LOCKED
) AS job
WHERE signal.id = ANY (ARRAY(SELECT id FROM redrive_signals WHERE pending ORDER BY id LIMIT :count::bigint))
    AND signal.pending
-- sqlite
SELECT signal.id, signal.run_id, signal.name = :child AND signal.key LIKE 'cancel.%' AS cancels
FROM redrive_signals AS signal
CROSS JOIN redrive_jobs AS job ON job.id = signal.run_id
WHERE signal.pending AND job.state <> 'running'
ORDER BY signal.id
LIMIT :count

-- name: signals_wake
-- Make parked runs due that wait for one of these signals, and return them.
-- It runs after signals_fresh.
-- postgres
UPDATE redrive_jobs AS job SET scheduled_at = :now::timestamptz
-- As in settle_succeeded: the planner must not use the index of held jobs.
WHERE job.id = ANY (:run_ids::bigint[]) AND job.state = 'ready' AND coalesce(job.hold, '') = 'parked'
    AND job.scheduled_at > :now
    AND EXISTS (
        SELECT FROM redrive_signals AS signal
        CROSS JOIN LATERAL (
            SELECT FROM redrive_steps
            WHERE run_id = signal.run_id AND outcome = 'waiting' AND (
                (kind = 'wait' AND name = signal.name) OR (kind = 'call' AND error IS NULL AND signal.name = :child::text)
            )
            OFFSET 0
        ) AS step
        WHERE signal.run_id = job.id AND signal.id = ANY (:ids::bigint[]) AND signal.path IS NULL
        OFFSET 0
    )
RETURNING job.id
-- sqlite
UPDATE redrive_jobs SET scheduled_at = :now
WHERE id IN (SELECT value FROM json_each(:run_ids)) AND state = 'ready' AND hold = 'parked' AND scheduled_at > :now
    AND EXISTS (
        SELECT 1 FROM redrive_signals AS signal
        JOIN redrive_steps AS step ON step.run_id = signal.run_id AND step.outcome = 'waiting'
        WHERE signal.id IN (SELECT value FROM json_each(:ids)) AND signal.run_id = redrive_jobs.id
            AND signal.path IS NULL
            AND (
                (step.kind = 'wait' AND step.name = signal.name)
                OR (step.kind = 'call' AND step.error IS NULL AND signal.name = :child)
            )
    )
RETURNING id

-- name: runs_due
-- Make parked, paused or held runs due now, and those that wait for something else if they are to be cancelled.
-- postgres
UPDATE redrive_jobs SET hold = CASE WHEN hold = 'paused' THEN 'parked' ELSE hold END, scheduled_at = least(scheduled_at, :now::timestamptz)
-- As in settle_succeeded: the planner must not use the index of held jobs.
WHERE id = ANY (:ids::bigint[]) AND state = 'ready'
    AND (
        coalesce(hold, '') IN ('parked', 'paused', 'held')
        OR EXISTS (
            SELECT FROM redrive_runs AS run WHERE run.job_id = redrive_jobs.id AND run.cancel_at IS NOT NULL OFFSET 0
        )
    )
RETURNING id
-- sqlite
UPDATE redrive_jobs SET hold = CASE WHEN hold = 'paused' THEN 'parked' ELSE hold END, scheduled_at = min(scheduled_at, :now)
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'ready'
    AND (
        hold IN ('parked', 'paused', 'held')
        OR EXISTS (SELECT 1 FROM redrive_runs AS run WHERE run.job_id = redrive_jobs.id AND run.cancel_at IS NOT NULL)
    )
RETURNING id

-- name: signals_offered
-- Mark signals as offered to their runs.
-- It runs after signals_wake.
-- postgres
UPDATE redrive_signals SET pending = false WHERE id = ANY (:ids::bigint[])
-- sqlite
UPDATE redrive_signals SET pending = 0 WHERE id IN (SELECT value FROM json_each(:ids))

-- name: emits_wake
-- Make parked runs due that wait for pending emitted values, and return them.
-- postgres
WITH held AS MATERIALIZED (
    SELECT id FROM redrive_jobs
    WHERE id = ANY (ARRAY(
            SELECT step.run_id FROM redrive_steps AS step
            WHERE step.outcome = 'waiting' AND step.kind = 'event'
                AND step.name = ANY (ARRAY(SELECT name FROM redrive_emits WHERE pending ORDER BY name LIMIT :count::bigint))
        ))
        -- As in settle_succeeded: the planner must not use the index of held jobs.
        AND state = 'ready' AND coalesce(hold, '') = 'parked' AND scheduled_at > :now::timestamptz
    ORDER BY id
    LIMIT :count
    FOR UPDATE SKIP LOCKED
)
UPDATE redrive_jobs SET scheduled_at = :now WHERE id = ANY (ARRAY(SELECT id FROM held))
RETURNING id
-- sqlite
UPDATE redrive_jobs SET scheduled_at = :now
WHERE id IN (
        SELECT job.id
        FROM redrive_emits AS emit
        -- CROSS JOIN keeps this order: SQLite might begin with all parked runs.
        CROSS JOIN redrive_steps AS step ON step.name = emit.name AND step.outcome = 'waiting' AND step.kind = 'event'
        CROSS JOIN redrive_jobs AS job ON job.id = step.run_id
        WHERE emit.pending AND job.state = 'ready' AND job.hold = 'parked' AND job.scheduled_at > :now
        LIMIT :count
    )
RETURNING id

-- name: emits_offered
-- Mark emitted values as offered once no run can wait for them without having seen them, and return them.
-- postgres
UPDATE redrive_emits AS emit SET
    -- A run that is being parked may have looked before the value was committed. Its transaction had an id
    -- by then, which is lower than the first id that was free when the value was noticed; so once all these have ended, its
    -- row is visible here.
    noticed = coalesce(noticed, pg_snapshot_xmax(pg_current_snapshot())),
    pending = noticed IS NULL OR noticed > pg_snapshot_xmin(pg_current_snapshot()) OR EXISTS (
        SELECT FROM redrive_steps AS step
        CROSS JOIN LATERAL (
            SELECT FROM redrive_jobs
            WHERE id = step.run_id AND state = 'ready' AND hold = 'parked' AND scheduled_at > :now::timestamptz
            OFFSET 0
        ) AS job
        WHERE step.outcome = 'waiting' AND step.kind = 'event' AND step.name = emit.name
        OFFSET 0
    )
WHERE name = ANY (ARRAY(SELECT name FROM redrive_emits WHERE pending ORDER BY name LIMIT :count::bigint FOR UPDATE SKIP LOCKED))
RETURNING emit.name, emit.pending
-- sqlite
UPDATE redrive_emits SET pending = EXISTS (
    SELECT 1 FROM redrive_steps AS step
    JOIN redrive_jobs AS job ON job.id = step.run_id
    WHERE step.outcome = 'waiting' AND step.kind = 'event' AND step.name = redrive_emits.name
        AND job.state = 'ready' AND job.hold = 'parked' AND job.scheduled_at > :now
)
WHERE pending
RETURNING name, pending

-- name: runs_flags
-- Return what operators ask of these runs.
-- transaction: none
-- both
SELECT job_id, cancel_why, paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now::timestamptz)
FROM redrive_runs
WHERE job_id = ANY (:ids::bigint[])

-- name: emits_forget
-- Delete emitted values that have expired, at most as many as given, and return their names.
-- postgres
DELETE FROM redrive_emits
WHERE name = ANY (ARRAY(
    SELECT name FROM redrive_emits WHERE expires_at <= :now::timestamptz ORDER BY expires_at LIMIT :count::bigint
))
RETURNING name
-- sqlite
DELETE FROM redrive_emits
WHERE name IN (SELECT name FROM redrive_emits WHERE expires_at <= :now ORDER BY expires_at LIMIT :count)
RETURNING name
