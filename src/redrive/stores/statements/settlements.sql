-- The statements of operations/settlements.py.

-- name: suspend
-- Let attempts wait for an external completion, each if its lease is still current, and return these leases.
-- The lease stays, because it names the completion. If repeated, the first end of the wait stays.
-- many: rows
-- postgres
UPDATE redrive_jobs AS job SET
    state = 'waiting',
    note = given.note,
    scheduled_at = CASE WHEN job.state = 'waiting' THEN job.scheduled_at ELSE given.scheduled_at END,
    crashes = 0,
    hold = NULL,
    slot = NULL
FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :scheduled_at::timestamptz[], :note::text[]
) AS given (job_id, lease_id, scheduled_at, note)
WHERE job.id = ANY (:job_id) AND job.id = given.job_id AND job.lease_id = given.lease_id
RETURNING job.lease_id
-- sqlite
UPDATE redrive_jobs SET
    state = 'waiting',
    note = :note,
    scheduled_at = CASE WHEN state = 'waiting' THEN scheduled_at ELSE :scheduled_at END,
    crashes = 0,
    hold = NULL,
    slot = NULL
WHERE id = :job_id AND lease_id = :lease_id
RETURNING lease_id

-- name: set_aside
-- Set aside attempts with ends that cannot be decided, each if its lease is still current, and return these leases.
-- The lease stays, and the next check is when the job is due again.
-- many: rows
-- postgres
UPDATE redrive_jobs AS job SET
    hold = 'bad_policy',
    note = given.note,
    scheduled_at = given.scheduled_at,
    slot = NULL
FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :scheduled_at::timestamptz[], :note::text[]
) AS given (job_id, lease_id, scheduled_at, note)
WHERE job.id = ANY (:job_id) AND job.id = given.job_id AND job.lease_id = given.lease_id
RETURNING job.lease_id
-- sqlite
UPDATE redrive_jobs SET
    hold = 'bad_policy',
    note = :note,
    scheduled_at = :scheduled_at,
    slot = NULL
WHERE id = :job_id AND lease_id = :lease_id
RETURNING lease_id

-- name: settle
-- Write the ends of attempts into their jobs, each if its lease is still current, and return these leases.
-- For everything but a plain success.
-- many: rows
-- postgres
UPDATE redrive_jobs AS job SET
    state = given.state,
    hold = given.hold,
    note = given.note,
    attempt = given.attempt,
    failures = given.failures,
    crashes = given.crashes,
    snoozes = given.snoozes,
    by_rule = given.by_rule::integer[],
    scheduled_at = coalesce(given.scheduled_at, job.scheduled_at),
    -- A job that was claimed and has not begun may still expire. Without an expiry its deadline goes on.
    started_at = CASE
        WHEN given.unstarted AND job.started_at = job.claimed_at AND job.expires_at IS NOT NULL THEN NULL
        ELSE job.started_at
    END,
    last_delay = given.last_delay,
    unreadable_at = given.unreadable_at,
    finished_at = given.finished_at,
    slot = NULL,
    success_lease_id = CASE WHEN given.state = 'succeeded' THEN job.lease_id END,
    success_worker_id = CASE WHEN given.state = 'succeeded' THEN job.worker_id END,
    lease_id = NULL,
    worker_id = NULL,
    fingerprint = CASE WHEN given.state = 'succeeded' THEN NULL ELSE coalesce(given.fingerprint, job.fingerprint) END,
    reason = CASE WHEN given.state = 'succeeded' THEN NULL ELSE coalesce(given.reason, job.reason) END,
    error = CASE WHEN given.state = 'succeeded' THEN NULL ELSE coalesce(given.error, job.error) END
FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :state::text[], :hold::text[], :note::text[], :attempt::integer[],
    :failures::integer[], :crashes::integer[], :snoozes::integer[], :by_rule::text[], :scheduled_at::timestamptz[],
    :last_delay::interval[], :finished_at::timestamptz[], :reason::text[], :error::text[],
    :before::text[], :unreadable_at::timestamptz[], :fingerprint::text[], :unstarted::boolean[]
) AS given (
    job_id, lease_id, state, hold, note, attempt, failures, crashes, snoozes, by_rule, scheduled_at, last_delay,
    finished_at, reason, error, before, unreadable_at, fingerprint, unstarted
)
WHERE job.id = ANY (:job_id) AND job.id = given.job_id AND job.lease_id = given.lease_id AND job.state = given.before
RETURNING given.lease_id
-- sqlite
UPDATE redrive_jobs SET
    state = :state,
    hold = :hold,
    note = :note,
    attempt = :attempt,
    failures = :failures,
    crashes = :crashes,
    snoozes = :snoozes,
    by_rule = :by_rule,
    scheduled_at = coalesce(:scheduled_at, scheduled_at),
    started_at = CASE
        WHEN :unstarted AND started_at = claimed_at AND expires_at IS NOT NULL THEN NULL
        ELSE started_at
    END,
    last_delay = :last_delay,
    unreadable_at = :unreadable_at,
    finished_at = :finished_at,
    slot = NULL,
    success_lease_id = CASE WHEN :state = 'succeeded' THEN lease_id END,
    success_worker_id = CASE WHEN :state = 'succeeded' THEN worker_id END,
    lease_id = NULL,
    worker_id = NULL,
    fingerprint = CASE WHEN :state = 'succeeded' THEN NULL ELSE coalesce(:fingerprint, fingerprint) END,
    reason = CASE WHEN :state = 'succeeded' THEN NULL ELSE coalesce(:reason, reason) END,
    error = CASE WHEN :state = 'succeeded' THEN NULL ELSE coalesce(:error, error) END
WHERE id = :job_id AND lease_id = :lease_id AND state = :before
RETURNING :lease_id

-- name: attempt_insert
-- Insert the history entries of attempts.
-- postgres
INSERT INTO redrive_attempts (
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
)
SELECT * FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :number::integer[], :worker_id::bigint[], :started_at::timestamptz[],
    :finished_at::timestamptz[], :outcome::text[], :reason::text[], :stage::text[], :error_type::text[], :error::text[],
    :traceback::text[], :nominal::interval[], :delay::interval[], :rule::text[], :verdict::text[]
)
-- sqlite
INSERT INTO redrive_attempts (
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
) VALUES (
    :job_id, :lease_id, :number, :worker_id, :started_at, :finished_at, :outcome, :reason, :stage, :error_type, :error,
    :traceback, :nominal, :delay, :rule, :verdict
)

-- name: attempts_forget
-- Delete the history entries of jobs up to a number of an attempt.
-- For catch jobs with a long history.
-- postgres
DELETE FROM redrive_attempts WHERE ctid = ANY (ARRAY(
    SELECT old.place
    FROM unnest(:job_id::bigint[], :number::integer[]) AS given (job_id, number)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM redrive_attempts WHERE job_id = given.job_id AND number <= given.number OFFSET 0
    ) AS old
))
-- sqlite
DELETE FROM redrive_attempts WHERE job_id = :job_id AND number <= :number

-- name: result_put
-- Write the results of jobs.
-- They replace the results from before a redrive.
-- many: pairs
-- postgres
INSERT INTO redrive_results (job_id, result)
SELECT * FROM unnest(:job_id::bigint[], :result::bytea[])
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result
-- sqlite
INSERT INTO redrive_results (job_id, result)
SELECT CAST(key AS INTEGER), CAST(value AS BLOB) FROM json_each(:pairs)
WHERE true -- without it SQLite parses ON as the beginning of a join
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result

-- name: caught
-- Mark dead jobs as caught.
-- After the success of their catch jobs.
-- postgres
UPDATE redrive_jobs AS job SET caught_at = given.now
FROM unnest(:job_id::bigint[], :now::timestamptz[]) AS given (job_id, now)
-- As in settle_succeeded: the planner must not use the index of dead jobs.
WHERE job.id = ANY (:job_id) AND job.id = given.job_id AND job.state || '' = 'dead' AND job.caught_at IS NULL
-- sqlite
UPDATE redrive_jobs SET caught_at = :now WHERE id = :job_id AND state = 'dead' AND caught_at IS NULL

-- name: closed_before
-- Return which of these leases have a history entry, and its outcome.
-- For leases that are not current: lost, or settled by an earlier commit whose reply was lost? SQLite would read the
-- whole view redrive_history for a list of ids.
-- postgres
SELECT lease_id, outcome FROM redrive_history
WHERE job_id = ANY (:job_ids::bigint[]) AND lease_id = ANY (:lease_ids::bigint[])
-- sqlite
SELECT lease_id, outcome FROM redrive_attempts
WHERE job_id IN (SELECT value FROM json_each(:job_ids)) AND lease_id IN (SELECT value FROM json_each(:lease_ids))
UNION ALL
SELECT success_lease_id, 'succeeded' FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:job_ids)) AND success_lease_id IN (SELECT value FROM json_each(:lease_ids))

-- name: cancel
-- End a job that is not final; the worker that runs it loses its lease.
-- both
UPDATE redrive_jobs SET
    state = 'cancelled',
    hold = NULL,
    note = :note::text,
    finished_at = :now::timestamptz,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL
WHERE id = :id::bigint AND state IN ('ready', 'running', 'waiting')
RETURNING id

-- name: unstopped_put
-- Insert records of handlers that still run after their attempts have ended; dead workers' do not count.
-- postgres
INSERT INTO redrive_unstopped (lease_id, job_id, queue, partition, worker_id)
SELECT given.lease_id, given.job_id, given.queue, given.partition, given.worker_id
FROM unnest(
    :lease_id::bigint[], :job_id::bigint[], :queue::text[], :partition::text[], :worker_id::bigint[]
) AS given (lease_id, job_id, queue, partition, worker_id)
JOIN redrive_workers AS worker ON worker.id = given.worker_id AND worker.stopped_at IS NULL
ORDER BY given.lease_id
ON CONFLICT DO NOTHING
-- sqlite
INSERT INTO redrive_unstopped (lease_id, job_id, queue, partition, worker_id)
SELECT :lease_id, :job_id, :queue, :partition, :worker_id
WHERE EXISTS (SELECT 1 FROM redrive_workers WHERE id = :worker_id AND stopped_at IS NULL)
ON CONFLICT DO NOTHING

-- name: unstopped_drop
-- Delete the records of handlers that have stopped.
-- both
DELETE FROM redrive_unstopped WHERE lease_id = ANY (:lease_ids::bigint[])
