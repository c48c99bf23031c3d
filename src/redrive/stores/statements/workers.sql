-- The statements of operations/workers.py.

-- fragment: lock_held
-- True if a session holds the lock of a worker.
-- postgres
    EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid = 'redrive_meta'::regclass
            AND objid = worker.lock_id::oid
            AND objsubid = 2
            AND granted
    )
-- sqlite
    NULL

-- fragment: worker_number
-- Take the next number of a worker.
-- sqlite
UPDATE redrive_sequences SET value = value + 1 WHERE name = 'worker'

-- fragment: worker_build
-- Insert the build of a worker with the first start of one that has it.
-- sqlite
INSERT INTO redrive_builds (build, first_at) SELECT :build, :now WHERE :build IS NOT NULL ON CONFLICT (build) DO NOTHING

-- name: worker_insert
-- Register a worker under the next number, and return its id: the number, or with a salt the number and the salt below it.
-- first: worker_number
-- first: worker_build
-- postgres
WITH known AS (
    INSERT INTO redrive_builds (build, first_at)
    SELECT :build::text, coalesce(:now::timestamptz, now) FROM redrive_clock WHERE :build::text IS NOT NULL
    ON CONFLICT (build) DO NOTHING
)
INSERT INTO redrive_workers (
    id, name, host, pid, birth, lock_id, locked_in, concurrency, queues, excluded, tasks, started_at, heartbeat_at,
    expires_at, version, build
)
SELECT
    CASE WHEN :salt::bigint IS NULL THEN taken.number ELSE (taken.number << :bits::integer) | :salt END,
    :name::text, :host::text, :pid::bigint, :birth::text, :lock_id::integer,
    CASE WHEN :is_locked::boolean THEN pg_postmaster_start_time() END, :concurrency::integer,
    :queues::text[], :excluded::text[], :tasks::text[], clock.now, clock.now, clock.now + :lease_for::interval,
    :version::text, :build::text
FROM (SELECT coalesce(:now::timestamptz, now) AS now FROM redrive_clock OFFSET 0) AS clock,
    (SELECT nextval('redrive_worker_ids') AS number OFFSET 0) AS taken
RETURNING id
-- sqlite
INSERT INTO redrive_workers (
    id, name, host, pid, birth, lock_id, concurrency, queues, excluded, tasks, started_at, heartbeat_at, expires_at,
    version, build
)
SELECT
    CASE WHEN :salt IS NULL THEN value ELSE (value << :bits) | :salt END,
    :name, :host, :pid, :birth, :lock_id, :concurrency, :queues, :excluded, :tasks, :now, :now, :now + :lease_for,
    :version, :build
FROM redrive_sequences
WHERE name = 'worker'
RETURNING id

-- name: builds
-- Return the builds since an instant, the latest first.
-- both
SELECT build, first_at FROM redrive_builds WHERE first_at >= :since::timestamptz ORDER BY first_at DESC, build

-- name: workers_begun
-- Return the workers that have a build, also those that have left, the latest start first.
-- both
SELECT id, build, tasks, started_at, coalesce(stopped_at, expires_at) AS ended_at, stopped_at IS NULL AS is_present
FROM redrive_workers
WHERE build IS NOT NULL
ORDER BY started_at DESC, id DESC
LIMIT :count::bigint

-- name: unstopped_of
-- Return the jobs of the handlers of a worker that go on although their attempts have ended.
-- both
SELECT job_id FROM redrive_unstopped WHERE worker_id = :worker_id::bigint ORDER BY job_id

-- name: heartbeat
-- Extend the lease of a worker from the present instant, and never shorten it; return its id if it is registered.
-- After a standby has taken over that lacks the registration, another process may have the id: hence the birth.
-- On PostgreSQL it is a transaction by itself: if a reply is lost, the row is not locked when the worker tries
-- again.
-- transaction: own
-- postgres
UPDATE redrive_workers AS worker SET
    heartbeat_at = clock.now,
    locked_in = CASE
        WHEN lock_id IS NOT NULL AND locked_in IS DISTINCT FROM pg_postmaster_start_time() AND
-- include lock_held
        THEN pg_postmaster_start_time()
        ELSE locked_in
    END,
    expires_at = greatest(expires_at, clock.now + :lease_for::interval),
    loop_lag_for = :loop_lag_for::interval,
    resumed_at = CASE WHEN 3 * (clock.now - heartbeat_at) >= 2 * :lease_for THEN clock.now ELSE resumed_at END
FROM (SELECT coalesce(:now::timestamptz, now) AS now FROM redrive_clock) AS clock
WHERE id = :id::bigint AND stopped_at IS NULL AND birth IS NOT DISTINCT FROM :birth::text
RETURNING id
-- sqlite
UPDATE redrive_workers SET
    heartbeat_at = :now,
    expires_at = max(expires_at, :now + :lease_for),
    loop_lag_for = :loop_lag_for,
    resumed_at = CASE WHEN 3 * (:now - heartbeat_at) >= 2 * :lease_for THEN :now ELSE resumed_at END
WHERE id = :id AND stopped_at IS NULL AND birth IS :birth
RETURNING id

-- name: leases_of
-- Return the leases that a worker holds, and what operators ask of those that are runs.
-- The worker stops the attempts that it has lost, and interrupts steps.
-- transaction: none
-- both
SELECT lease_id, CASE WHEN origin LIKE 'run:%' THEN (
    SELECT CASE WHEN cancel_at IS NOT NULL THEN 'cancel' WHEN paused_at IS NOT NULL THEN 'pause' END
    FROM redrive_runs AS run
    WHERE run.job_id = job.id
) END AS asked
FROM redrive_jobs AS job
WHERE state = 'running' AND worker_id = :worker_id::bigint

-- name: worker_trouble
-- Write which background duties of a worker fail, or that none does.
-- both
UPDATE redrive_workers SET trouble = :trouble::text WHERE id = :id::bigint AND stopped_at IS NULL

-- name: prolong
-- Extend the time of an attempt, if its lease is still current.
-- For a catch job of a task with a long timeout.
-- both
UPDATE redrive_jobs SET timeout_for = :timeout_for::interval WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint

-- name: worker_stop
-- Write that a worker has left, and return its id, unless another process has it.
-- postgres
UPDATE redrive_workers SET stopped_at = coalesce(stopped_at, :now::timestamptz)
WHERE id = :id::bigint AND birth IS NOT DISTINCT FROM :birth::text
RETURNING id
-- sqlite
UPDATE redrive_workers SET stopped_at = coalesce(stopped_at, :now) WHERE id = :id AND birth IS :birth
RETURNING id

-- name: worker_of_another
-- Return a row if another process has this id.
-- rows: counted
-- postgres
SELECT 1 FROM redrive_workers WHERE id = :id::bigint AND birth IS DISTINCT FROM :birth::text
-- sqlite
SELECT 1 FROM redrive_workers WHERE id = :id AND birth IS NOT :birth

-- name: worker_adopt
-- Give leases of a worker to its new id, after it has registered again, and return those that are current.
-- many: rows
-- postgres
UPDATE redrive_jobs AS job SET worker_id = given.worker_id
FROM unnest(:job_id::bigint[], :lease_id::bigint[], :worker_id::bigint[]) AS given (job_id, lease_id, worker_id)
-- As in settle_succeeded: the planner must not use the index of running jobs.
WHERE job.id = ANY (:job_id) AND job.id = given.job_id AND job.lease_id = given.lease_id AND state <> 'waiting'
RETURNING job.lease_id
-- sqlite
UPDATE redrive_jobs SET worker_id = :worker_id WHERE id = :job_id AND lease_id = :lease_id AND state = 'running'
RETURNING lease_id

-- name: worker_release
-- Give back the jobs that a worker still holds, or those under these leases, with no attempt spent; return them.
-- both
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'release',
    note = :note::text,
    -- A job that has not started keeps its place in the queue, and may still expire before its first start.
    scheduled_at = coalesce(:due::timestamptz, scheduled_at),
    started_at = CASE WHEN :due::timestamptz IS NULL AND started_at = claimed_at THEN NULL ELSE started_at END,
    attempt = attempt - 1,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL
WHERE state = 'running' AND worker_id = :worker_id::bigint
    AND (:leases::bigint[] IS NULL OR lease_id = ANY (:leases))
    -- Another process may have the id; see heartbeat.
    AND NOT EXISTS (SELECT FROM redrive_workers WHERE id = :worker_id AND birth <> :birth::text)
RETURNING id, task, key, key_until

-- name: stuck_end
-- End the sessions of processes that stopped in the middle of a statement of redrive, and so keep rows locked.
-- To the server such a session is active, so its timeout for idle transactions does not end it.
-- transaction: none
-- postgres
SELECT activity.pid, pg_terminate_backend(activity.pid)
FROM pg_stat_activity AS activity
-- The time is that of the server, as in state_change.
WHERE activity.datname = current_database() AND activity.usename = current_user
    AND activity.state = 'active' AND activity.wait_event = 'ClientRead'
    AND activity.xact_start IS NOT NULL AND activity.state_change <= clock_timestamp() - :silent_for::interval
    -- A statement of this schema as the drivers write it: sessions of other programs are left alone.
    AND position((
        SELECT format('"%s".redrive_', space.nspname)
        FROM pg_class AS ours JOIN pg_namespace AS space ON space.oid = ours.relnamespace
        WHERE ours.oid = 'redrive_jobs'::regclass
    ) IN activity.query) > 0
-- sqlite
SELECT NULL WHERE :silent_for IS NULL

-- fragment: worker_columns
-- What a worker registers, what it does, and its oldest attempt; feeders run as long as their subscription.
-- both
    id, name, host, pid, birth, lock_id, concurrency, queues, tasks, started_at, heartbeat_at, expires_at, stopped_at,
    trouble, version, excluded, build, loop_lag_for,
    (SELECT count(*) FROM redrive_jobs WHERE state = 'running' AND worker_id = worker.id) AS running,
    (SELECT count(*) FROM redrive_unstopped WHERE worker_id = worker.id) AS unstopped,
    (
        SELECT id FROM redrive_jobs
        WHERE state = 'running' AND worker_id = worker.id AND (origin IS NULL OR origin NOT LIKE 'topic:%@%')
        ORDER BY claimed_at, id
        LIMIT 1
    ) AS oldest_id,
    (
        SELECT min(claimed_at) FROM redrive_jobs
        WHERE state = 'running' AND worker_id = worker.id AND (origin IS NULL OR origin NOT LIKE 'topic:%@%')
    ) AS oldest_at,

-- name: workers
-- Return the workers that have not left, their running jobs, and whether the session of each still holds its lock.
-- No session of SQLite holds a lock.
-- transaction: none
-- postgres
SELECT
-- include worker_columns
    -- A lock that was taken in an earlier life of the server, or on the one before it, has ended with it.
    CASE WHEN lock_id IS NOT NULL AND locked_in = pg_postmaster_start_time() THEN
-- include lock_held
    END AS locked
FROM redrive_workers AS worker
WHERE stopped_at IS NULL
ORDER BY id
-- sqlite
SELECT
-- include worker_columns
    NULL AS locked
FROM redrive_workers AS worker
WHERE stopped_at IS NULL
ORDER BY id
