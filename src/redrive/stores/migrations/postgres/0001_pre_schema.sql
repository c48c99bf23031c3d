-- The schema of redrive on PostgreSQL. It is the first migration as well.
--
-- Everything lives in one schema of the user's choice; names are written without it here, and the driver puts it before
-- them. Instants are timestamptz and end in _at; spans are intervals and end in _for or _delay; ids are 64 bits wide.
-- Tables group columns by how often they change: redrive_jobs is narrow and updated often; payloads, results, policies
-- and attempts are written once. A claim therefore never rewrites a payload.
--
-- Tables that grow with every job have no foreign keys. A check of one costs as much as a third of the job, and locks
-- the row it points to. Rows of jobs are written by one transaction with their job, and deleted by the trigger below.

-- The database's clock; statements read it only through this view. It is not the start of the transaction: a
-- transaction of the user that enqueues at its end may have begun long ago.
CREATE VIEW redrive_clock AS
SELECT clock_timestamp() AS now;

-- The identity of this database, and the version of its schema.
CREATE TABLE redrive_meta (
    key text PRIMARY KEY,
    value text NOT NULL
);

-- Sequences that return each number once. No transaction waits for another one to get a number.
CREATE SEQUENCE redrive_job_ids AS bigint;
CREATE SEQUENCE redrive_lease_ids AS bigint;
CREATE SEQUENCE redrive_worker_ids AS bigint;

-- Policies. Jobs refer to them by the digest of their text. The digest is not unique: an
-- enqueue that sees no row inserts one, even if an open transaction has inserted the same policy. Therefore no enqueue
-- waits for the transaction of another one.
CREATE TABLE redrive_policies (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text COLLATE "C" NOT NULL,
    document text NOT NULL,
    retired_at timestamptz                -- when no job had it; deleted a day later, enqueues insert it again
);

CREATE INDEX redrive_policies_digest ON redrive_policies (digest);

CREATE TABLE redrive_workers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    host text,
    pid bigint,
    birth text,                           -- distinguishes it from a later process with the same pid on the host
    lock_id integer,                      -- the advisory lock that its session holds
    locked_in timestamptz,                -- the start of the server in which it was seen to hold it
    concurrency integer NOT NULL CHECK (concurrency > 0),
    queues text[],                        -- NULL: all queues
    excluded text[],                      -- queues that it does not serve
    tasks text[],                         -- the tasks that it claims; NULL: all tasks
    started_at timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    stopped_at timestamptz,
    late_at timestamptz,                  -- when a sweep last found its heartbeat late
    resumed_at timestamptz,               -- its first heartbeat after a long silence
    trouble text,                         -- its background tasks that fail because of a defect, with the errors
    version text,                         -- the version of its redrive
    build text,                           -- of its code
    loop_lag_for interval,                -- the time for which its event loop had not run at its last heartbeat
    CHECK (expires_at >= heartbeat_at)    -- a heartbeat never shortens the lease
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

CREATE INDEX redrive_workers_present ON redrive_workers (id) WHERE stopped_at IS NULL;

-- The builds of the code, each with the first start of a worker that had it, for charts.
CREATE TABLE redrive_builds (
    build text COLLATE "C" PRIMARY KEY,
    first_at timestamptz NOT NULL
);

-- Handlers that continue after their attempts have ended: cancelled ones that have not stopped yet, and threads beyond
-- their timeout. They occupy slots of their queues until they have stopped or their worker is removed.
CREATE TABLE redrive_unstopped (
    lease_id bigint PRIMARY KEY,
    job_id bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    partition text COLLATE "C",
    worker_id bigint NOT NULL REFERENCES redrive_workers (id) ON DELETE CASCADE
) WITH (autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

CREATE INDEX redrive_unstopped_of ON redrive_unstopped (queue, partition);

-- Queues with settings: paused, limited or ordered ones, and those with partitions served in rotation. Operators change
-- the settings while workers run; they apply from the next claim on.
CREATE TABLE redrive_queues (
    name text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
    paused_at timestamptz,
    paused_by text,                       -- the operator who paused it; NULL: the code
    concurrency integer CHECK (concurrency >= 0),         -- running attempts, in all workers together
    per_partition integer CHECK (per_partition > 0),      -- running attempts of each partition
    rate_count integer CHECK (rate_count > 0),            -- starts within any span of rate_for
    rate_for interval CHECK (rate_for > interval '0'),
    partition_rate_count integer CHECK (partition_rate_count > 0), -- starts of each partition within any span
    partition_rate_for interval CHECK (partition_rate_for > interval '0'),
    ordered boolean NOT NULL DEFAULT false,               -- each partition runs one job at a time, in order
    aging_for interval CHECK (aging_for > interval '0'),  -- each such wait raises a job by one priority
    turn text COLLATE "C",                                -- the partition served last; the next one is first
    changed_at timestamptz,                               -- by an operator; NULL: no operator has, and code may
    set_at timestamptz,                                   -- when code or an operator set the current values
    CHECK ((rate_count IS NULL) = (rate_for IS NULL)),
    CHECK ((partition_rate_count IS NULL) = (partition_rate_for IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

-- The latest starts of each queue with a rate, as many as its rates need.
CREATE TABLE redrive_starts (
    queue text COLLATE "C" NOT NULL REFERENCES redrive_queues (name) ON DELETE CASCADE,
    lease_id bigint NOT NULL,
    started_at timestamptz NOT NULL,
    partition text COLLATE "C",
    PRIMARY KEY (queue, lease_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- Types of columns of redrive_jobs. PostgreSQL reads each CHECK of a table from the catalog and plans it in every statement
-- that writes a row. The CHECK of a domain is read and planned once in a session.
CREATE DOMAIN redrive_name AS text COLLATE "C" CHECK (VALUE <> '');
CREATE DOMAIN redrive_count AS integer CHECK (VALUE >= 0);
CREATE DOMAIN redrive_timeout AS interval CHECK (VALUE > interval '0');
CREATE DOMAIN redrive_key_until AS text CHECK (VALUE IN ('start', 'end'));
CREATE DOMAIN redrive_hold AS text CHECK (
    VALUE IN (
        'delay', 'retry', 'snooze', 'release', 'unknown_task', 'bad_payload', 'bad_policy', 'lost', 'redrive', 'debounce', 'breaker',
        'parked', 'paused', 'held', 'batch'
    )
);

-- The columns of redrive_jobs that depend on each other.
CREATE TYPE redrive_life AS (
    state text,
    started_at timestamptz,
    expires_at timestamptz,
    claimed_at timestamptz,
    finished_at timestamptz,
    lease_id bigint,
    worker_id bigint,
    success_lease_id bigint,
    success_worker_id bigint,
    hold text,
    slot text,
    caught_at timestamptz,
    skipped_at timestamptz,
    key text,
    key_until text
);

-- A job has a lease if and only if an attempt of it is open, a finishing time if and only if it is final, and the lease of a
-- success if and only if it has succeeded. Only running jobs occupy a slot, and only dead jobs are caught or skipped. Only
-- ready jobs are held, and attempts that ended but cannot be decided. An expired job never starts.
CREATE DOMAIN redrive_valid_life AS redrive_life CHECK (
    ((VALUE).key IS NULL) = ((VALUE).key_until IS NULL)
    AND ((VALUE).started_at < (VALUE).expires_at) IS NOT false
    AND CASE (VALUE).state
        WHEN 'ready' THEN
            num_nonnulls(
                (VALUE).finished_at, (VALUE).lease_id, (VALUE).worker_id, (VALUE).success_lease_id,
                (VALUE).success_worker_id, (VALUE).slot, (VALUE).caught_at, (VALUE).skipped_at
            ) = 0
        WHEN 'running' THEN
            num_nulls((VALUE).claimed_at, (VALUE).lease_id, (VALUE).worker_id) = 0
            AND num_nonnulls(
                (VALUE).finished_at, (VALUE).success_lease_id, (VALUE).success_worker_id, (VALUE).caught_at,
                (VALUE).skipped_at
            ) = 0
            AND coalesce((VALUE).hold, 'bad_policy') = 'bad_policy'
        WHEN 'waiting' THEN
            num_nulls((VALUE).claimed_at, (VALUE).lease_id, (VALUE).worker_id) = 0
            AND num_nonnulls(
                (VALUE).finished_at, (VALUE).success_lease_id, (VALUE).success_worker_id, (VALUE).slot,
                (VALUE).caught_at, (VALUE).skipped_at
            ) = 0
            AND coalesce((VALUE).hold, 'bad_policy') = 'bad_policy'
        WHEN 'succeeded' THEN
            num_nulls(
                (VALUE).claimed_at, (VALUE).finished_at, (VALUE).success_lease_id, (VALUE).success_worker_id
            ) = 0
            AND num_nonnulls(
                (VALUE).lease_id, (VALUE).worker_id, (VALUE).hold, (VALUE).slot, (VALUE).caught_at, (VALUE).skipped_at
            ) = 0
        WHEN 'dead' THEN
            (VALUE).finished_at IS NOT NULL
            AND num_nonnulls(
                (VALUE).lease_id, (VALUE).worker_id, (VALUE).success_lease_id, (VALUE).success_worker_id,
                (VALUE).hold, (VALUE).slot
            ) = 0
        WHEN 'cancelled' THEN
            (VALUE).finished_at IS NOT NULL
            AND num_nonnulls(
                (VALUE).lease_id, (VALUE).worker_id, (VALUE).success_lease_id, (VALUE).success_worker_id,
                (VALUE).hold, (VALUE).slot, (VALUE).caught_at, (VALUE).skipped_at
            ) = 0
        ELSE false
    END
);

-- A claim and a settle each leave a dead row, so this table is vacuumed early and at full speed. An update of the state
-- cannot be heap-only, but if the row stays on its page, the log has only what changed, and no record of a lock: the
-- fillfactor reserves space for that. With 50 a full page has room for a second version of each row (ADR-0032).
CREATE TABLE redrive_jobs (
    id bigint PRIMARY KEY,
    priority bigint NOT NULL,
    salt bigint NOT NULL,                 -- random part of its idempotency key, because a database that is restored
                                          -- from a backup assigns its id again
    enqueued_at timestamptz NOT NULL,
    scheduled_at timestamptz NOT NULL,
    failures redrive_count NOT NULL DEFAULT 0,
    crashes redrive_count NOT NULL DEFAULT 0,
    snoozes redrive_count NOT NULL DEFAULT 0,
    redrives redrive_count NOT NULL DEFAULT 0,
    task redrive_name NOT NULL,
    queue redrive_name NOT NULL,
    policy text COLLATE "C" NOT NULL,
    partition redrive_name,               -- a tenant or account within its queue
    key text COLLATE "C",                 -- unique in its task
    key_until redrive_key_until,
    origin text,                          -- cron:name/instant, machine:name/key; NULL: enqueued by the application
    parent_id bigint,
    latest_at timestamptz,                -- a debounced job is not postponed beyond this
    expires_at timestamptz,               -- a job that has not started by then is cancelled
    caught_at timestamptz,
    -- When the jobs behind it could pass: when it died, by the rule of its subscription, or later, by an operator.
    skipped_at timestamptz,
    timeout_for redrive_timeout,          -- that of its policy; NULL: that of an attempt without one
    last_delay interval,
    by_rule integer[],                    -- failures matched by each rule of the policy
    unreadable_at timestamptz,            -- the time since which no worker can read its arguments
    -- The columns that a claim and a settle write stand together, at the end: the log of an update that stays on its
    -- page has the bytes from the first changed column to the last one.
    attempt redrive_count NOT NULL DEFAULT 0,
    started_at timestamptz,
    claimed_at timestamptz,
    finished_at timestamptz,
    lease_id bigint,
    worker_id bigint,
    success_lease_id bigint,              -- the lease and the worker of the attempt that succeeded; its history entry is
    success_worker_id bigint,             -- this row, see redrive_history
    state text COLLATE "C" NOT NULL,
    hold redrive_hold,
    slot text COLLATE "C",                -- the limited queue in which this attempt occupies a slot
    fingerprint text COLLATE "C",         -- the error group of its last failure
    reason text,
    error text,
    note text
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 2000, autovacuum_analyze_scale_factor = 0.02
);

-- Refuses an update that contradicts the state of a job: the conversion to the domain fails, so the function is never
-- called. Not a CHECK (ADR-0022): PostgreSQL reads and plans that again in each statement, also in an enqueue, whose one row
-- is ready and has none of the other columns.
CREATE FUNCTION redrive_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'redrive_jobs: the row contradicts its state';
END
$$;

CREATE TRIGGER redrive_jobs_life AFTER UPDATE ON redrive_jobs
FOR EACH ROW WHEN (
    num_nulls(
        ROW(
            NEW.state, NEW.started_at, NEW.expires_at, NEW.claimed_at, NEW.finished_at, NEW.lease_id, NEW.worker_id,
            NEW.success_lease_id, NEW.success_worker_id, NEW.hold, NEW.slot, NEW.caught_at, NEW.skipped_at, NEW.key,
            NEW.key_until
        )::redrive_valid_life
    ) > 0
) EXECUTE FUNCTION redrive_refuse();

-- Indexes for claims: ready rows only, so that waiting retries and finished jobs do not slow claims down. Within a lane
-- (queue, priority and task) rows are in the order of the claim. The task belongs to the lane because a worker claims
-- only the tasks that it has: one index probe skips all jobs of another task. Jobs with a partition have indexes of
-- their own, since partitions are served in rotation.
CREATE INDEX redrive_jobs_ready ON redrive_jobs (queue, priority, task, scheduled_at, id)
WHERE state = 'ready' AND partition IS NULL;
CREATE INDEX redrive_jobs_parted ON redrive_jobs (queue, priority, task, scheduled_at, id)
WHERE state = 'ready' AND partition IS NOT NULL;
CREATE INDEX redrive_jobs_shares ON redrive_jobs (queue, partition, priority, task, scheduled_at, id)
WHERE state = 'ready' AND partition IS NOT NULL;

-- The lanes of plain queues that have ready rows, by a loose scan: as many index probes as there are lanes, however
-- long each one is. A queue is plain if it has no row in redrive_queues, and if its jobs have no partition.
CREATE VIEW redrive_lanes AS
WITH RECURSIVE lane AS (
    (
        SELECT queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL
        ORDER BY queue, priority, task LIMIT 1
    )
    UNION ALL
    SELECT following.queue, following.priority, following.task
    FROM lane
    CROSS JOIN LATERAL (
        SELECT queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND (queue, priority, task) > (lane.queue, lane.priority, lane.task)
        ORDER BY queue, priority, task LIMIT 1
    ) AS following
)
SELECT queue, priority, task FROM lane
WHERE NOT EXISTS (SELECT FROM redrive_queues WHERE name = lane.queue);

-- The lanes of the other queues, unless they are paused; separate for jobs with and without a partition.
CREATE VIEW redrive_special_lanes AS
WITH RECURSIVE loose AS (
    SELECT known.name AS queue, first.priority, first.task
    FROM redrive_queues AS known
    CROSS JOIN LATERAL (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = known.name
        ORDER BY priority, task LIMIT 1
    ) AS first
    WHERE known.paused_at IS NULL
    UNION ALL
    SELECT loose.queue, following.priority, following.task
    FROM loose
    CROSS JOIN LATERAL (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = loose.queue
            AND (priority, task) > (loose.priority, loose.task)
        ORDER BY priority, task LIMIT 1
    ) AS following
),
parted AS (
    (
        SELECT queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL
        ORDER BY queue, priority, task LIMIT 1
    )
    UNION ALL
    SELECT following.queue, following.priority, following.task
    FROM parted
    CROSS JOIN LATERAL (
        SELECT queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL
            AND (queue, priority, task) > (parted.queue, parted.priority, parted.task)
        ORDER BY queue, priority, task LIMIT 1
    ) AS following
)
SELECT queue, priority, task, false AS is_parted FROM loose
UNION ALL
SELECT queue, priority, task, true AS is_parted FROM parted
WHERE NOT EXISTS (SELECT FROM redrive_queues WHERE name = parted.queue AND paused_at IS NOT NULL);

-- The lanes of all queues, also of paused ones, for counts; separate for jobs with and without a partition.
CREATE VIEW redrive_ready_lanes AS
WITH RECURSIVE loose AS (
    (
        SELECT queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL
        ORDER BY queue, priority, task LIMIT 1
    )
    UNION ALL
    SELECT following.queue, following.priority, following.task
    FROM loose
    CROSS JOIN LATERAL (
        SELECT queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL
            AND (queue, priority, task) > (loose.queue, loose.priority, loose.task)
        ORDER BY queue, priority, task LIMIT 1
    ) AS following
),
parted AS (
    (
        SELECT queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL
        ORDER BY queue, priority, task LIMIT 1
    )
    UNION ALL
    SELECT following.queue, following.priority, following.task
    FROM parted
    CROSS JOIN LATERAL (
        SELECT queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL
            AND (queue, priority, task) > (parted.queue, parted.priority, parted.task)
        ORDER BY queue, priority, task LIMIT 1
    ) AS following
)
SELECT queue, priority, task, false AS is_parted FROM loose
UNION ALL
SELECT queue, priority, task, true AS is_parted FROM parted;

-- Indexes for the sweep.
CREATE INDEX redrive_jobs_running ON redrive_jobs (worker_id) WHERE state = 'running';
CREATE INDEX redrive_jobs_waiting ON redrive_jobs (scheduled_at) WHERE state = 'waiting';

-- Jobs that have not started and expire, by the instant. Jobs without an expiry are not in it.
CREATE INDEX redrive_jobs_expiring ON redrive_jobs (expires_at)
WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL;

-- The occupied slots, which a claim of a limited queue counts.
CREATE INDEX redrive_jobs_slots ON redrive_jobs (slot, partition) WHERE slot IS NOT NULL;

-- The order of an ordered queue: the first job of each partition, in any unfinished state, blocks those behind it.
CREATE INDEX redrive_jobs_lines ON redrive_jobs (queue, partition, id)
WHERE partition IS NOT NULL AND (
    state = 'ready' OR state = 'running' OR state = 'waiting'
    OR (state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL)
);

-- Indexes for redriving and listing dead jobs.
CREATE INDEX redrive_jobs_dead ON redrive_jobs (id) WHERE state = 'dead' AND caught_at IS NULL;
CREATE INDEX redrive_jobs_caught ON redrive_jobs (id) WHERE caught_at IS NOT NULL;
-- Dead deliveries, and dead jobs of other queues with partitions: a subscription counts its own.
CREATE INDEX redrive_jobs_undelivered ON redrive_jobs (task, id)
WHERE state = 'dead' AND caught_at IS NULL AND partition IS NOT NULL;
CREATE INDEX redrive_jobs_grouped ON redrive_jobs (fingerprint, id)
WHERE state = 'dead' AND caught_at IS NULL;

-- Jobs that are held, for example for a retry, by due time. A job that was enqueued without delay is not in it.
CREATE INDEX redrive_jobs_held ON redrive_jobs (hold, scheduled_at, id) WHERE hold IS NOT NULL;

-- The unfinished catch job of a dead job: at most one.
CREATE UNIQUE INDEX redrive_jobs_catching ON redrive_jobs (parent_id)
WHERE parent_id IS NOT NULL AND state IN ('ready', 'running', 'waiting');

-- All catch jobs of a dead job: no job is pruned before its children.
CREATE INDEX redrive_jobs_children ON redrive_jobs (parent_id) WHERE parent_id IS NOT NULL;

-- The holders of keys. A unique key is held until its job starts or ends; an idempotency key until its job is pruned.
CREATE TABLE redrive_keys (
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('unique', 'idempotency')),
    scope text COLLATE "C" NOT NULL,      -- the task of a unique key; '' for idempotency keys
    key text COLLATE "C" NOT NULL,
    job_id bigint NOT NULL,
    PRIMARY KEY (kind, scope, key)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX redrive_keys_of ON redrive_keys (job_id);

CREATE TABLE redrive_payloads (
    job_id bigint PRIMARY KEY,
    payload bytea NOT NULL
);

CREATE TABLE redrive_results (
    job_id bigint PRIMARY KEY,
    result bytea NOT NULL
);

-- Closed attempts that did not succeed, one row each, never changed. The open attempt and the one that succeeded are
-- in the row of the job.
CREATE TABLE redrive_attempts (
    job_id bigint NOT NULL,
    lease_id bigint NOT NULL,
    number integer NOT NULL CHECK (number > 0),
    worker_id bigint NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('failed', 'snoozed', 'cancelled', 'lost', 'released')),
    reason text,
    stage text CHECK (stage IN ('not_sent', 'in_flight', 'answered')),
    error_type text,
    error text,
    traceback text,
    nominal interval CHECK (nominal >= interval '0'),
    delay interval CHECK (delay >= interval '0'),
    rule text,
    verdict text,
    PRIMARY KEY (job_id, lease_id),
    -- a failure has a reason
    CHECK (outcome NOT IN ('failed', 'lost') OR (reason IS NOT NULL AND rule IS NOT NULL))
);

-- Closed attempts, the failed ones and those that succeeded. A success has no row of its own: it is the last attempt of
-- its job, and the row of the job has all that is stored of it.
CREATE VIEW redrive_history AS
SELECT
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
FROM redrive_attempts
UNION ALL
SELECT
    id, success_lease_id, attempt, success_worker_id, claimed_at, finished_at, 'succeeded', NULL::text, NULL::text, NULL::text, NULL::text,
    NULL::text, NULL::interval, NULL::interval, NULL::text, NULL::text
FROM redrive_jobs
WHERE success_lease_id IS NOT NULL;

-- The latest progress report of each handler.
CREATE TABLE redrive_progress (
    job_id bigint PRIMARY KEY,
    lease_id bigint NOT NULL,
    details text NOT NULL,                -- JSON
    at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

-- Trace contexts, which link the attempts of a job to the trace of its enqueue; most jobs have none.
CREATE TABLE redrive_traces (
    job_id bigint PRIMARY KEY,
    trace text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

-- Tags, by which operators and programs find jobs; most jobs have none.
CREATE TABLE redrive_tags (
    tag text COLLATE "C" NOT NULL CHECK (tag <> ''),
    job_id bigint NOT NULL,
    PRIMARY KEY (tag, job_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX redrive_tags_of ON redrive_tags (job_id);

-- Schedules as the code last declared them: crons and refreshes.
CREATE TABLE redrive_schedules (
    name text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('cron', 'refresh')),
    document text NOT NULL,               -- JSON: when it is due, and its job template
    timing text COLLATE "C" NOT NULL,     -- digest of the part that determines due times
    declared_at timestamptz NOT NULL,
    paused_at timestamptz,
    paused_by text,
    resumed_at timestamptz,               -- occurrences planned during the last pause are skipped
    next_at timestamptz,                  -- of a cron: the next occurrence, not decided yet
    job_id bigint,                        -- of a cron: the latest job
    queued_at timestamptz,                -- of a cron: the occurrence that waits for the end of that job
    created boolean NOT NULL,             -- a cron that was created at run time: every worker starts it
    CHECK (kind = 'cron' OR NOT created),
    CHECK (kind = 'cron' OR (next_at IS NULL AND job_id IS NULL AND queued_at IS NULL))
);

-- Decisions on the occurrences of crons, one row each, so that each occurrence is decided once.
CREATE TABLE redrive_occurrences (
    schedule text COLLATE "C" NOT NULL,
    occurs_at timestamptz NOT NULL,
    decided_at timestamptz NOT NULL,
    decision text NOT NULL CHECK (decision IN ('started', 'queued', 'skipped', 'missed')),
    job_id bigint,
    note text,
    PRIMARY KEY (schedule, occurs_at),
    CHECK ((decision = 'started') = (job_id IS NOT NULL))
);

CREATE INDEX redrive_occurrences_old ON redrive_occurrences (decided_at);

-- Tracked items of refreshes with their state.
CREATE TABLE redrive_refreshes (
    schedule text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL CHECK (key <> ''),
    payload bytea NOT NULL,
    own text,                             -- the item's own policy as JSON; NULL: that of the schedule
    timing text COLLATE "C" NOT NULL,     -- digest of the policy from which its times were computed
    tracked_at timestamptz NOT NULL,
    refresh_at timestamptz,
    deadline_at timestamptz,
    planned_at timestamptz,
    started_at timestamptz,
    due_at timestamptz,
    failing_since timestamptz,
    succeeded_at timestamptz,
    sweep_at timestamptz,                 -- the next deadline or time limit
    attempt_no integer NOT NULL CHECK (attempt_no >= 0),
    attempts_since_success integer NOT NULL CHECK (attempts_since_success >= 0),
    job_id bigint,                        -- the job of the open attempt; its id is the attempt's token
    disabled_until_update boolean NOT NULL,
    disabled_reason text,
    completed boolean NOT NULL,
    paused boolean NOT NULL,
    PRIMARY KEY (schedule, key),
    -- an attempt runs if and only if it has a deadline
    CHECK ((job_id IS NULL) = (deadline_at IS NULL)),
    CHECK (job_id IS NULL OR sweep_at IS NOT NULL),
    -- a disabled item has a reason, and no due time until the next update
    CHECK (disabled_until_update = (disabled_reason IS NOT NULL)),
    CHECK (NOT disabled_until_update OR (refresh_at IS NULL AND job_id IS NULL AND sweep_at IS NULL))
) WITH (
    fillfactor = 70, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02
);

-- Waiting items by due time, for the query that finds due items.
CREATE INDEX redrive_refreshes_due ON redrive_refreshes (schedule, refresh_at)
WHERE refresh_at IS NOT NULL AND job_id IS NULL AND NOT paused;

CREATE INDEX redrive_refreshes_sweep ON redrive_refreshes (sweep_at) WHERE sweep_at IS NOT NULL;

-- Items without a policy of their own, which are rescheduled if the policy of the code changes.
CREATE INDEX redrive_refreshes_timing ON redrive_refreshes (schedule, timing) WHERE own IS NULL;

-- Failing and disabled items, which operators list. An item that has just succeeded is not in it.
CREATE INDEX redrive_refreshes_trouble ON redrive_refreshes (schedule, key)
WHERE disabled_until_update OR attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL);

-- Instances of state machines. While a transition runs, waits for a retry or has failed, job_id is its job, and to_state
-- the state that it leads to; the instance stays in its state until then.
CREATE TABLE redrive_instances (
    machine text COLLATE "C" NOT NULL CHECK (machine <> ''),
    key text COLLATE "C" NOT NULL CHECK (key <> ''),
    state text COLLATE "C",               -- NULL: before its first transition has ended
    to_state text COLLATE "C",
    status text COLLATE "C" NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    job_id bigint,
    event text,                           -- the type of the event of the transition
    moves integer NOT NULL DEFAULT 0 CHECK (moves >= 0),
    created_at timestamptz NOT NULL,
    entered_at timestamptz NOT NULL,
    timeout_at timestamptz,               -- written with the move; a busy or failed instance does not time out
    timeout_event text,
    timeout_payload bytea,
    data bytea,                           -- JSON
    error text,
    version text,                         -- digest of the definition at the last move
    waiting text COLLATE "C" CHECK (waiting IN ('event', 'failure')), -- has its turn next; see redrive_moves.noted
    -- a transition leads somewhere
    CHECK ((job_id IS NULL) = (to_state IS NULL)),
    CHECK ((job_id IS NULL) = (event IS NULL)),
    -- a failure belongs to a transition and has a text; an instance without a transition is in a state or new
    CHECK (status <> 'failed' OR (job_id IS NOT NULL AND error IS NOT NULL)),
    CHECK (status <> 'completed' OR state IS NOT NULL),
    CHECK ((timeout_at IS NULL) = (timeout_event IS NULL)),
    CHECK ((timeout_at IS NULL) = (timeout_payload IS NULL))
) WITH (
    fillfactor = 70, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02
);

-- Timeouts that are not held up, by instant. Instances without a timeout are not in it.
CREATE INDEX redrive_instances_timeouts ON redrive_instances (machine, timeout_at)
WHERE timeout_at IS NOT NULL AND job_id IS NULL;

-- Instances that are free for an event that waits for its turn, the longest free first.
CREATE INDEX redrive_instances_turns ON redrive_instances (machine, entered_at)
WHERE waiting IS NOT NULL AND (job_id IS NULL OR (status = 'failed' AND waiting = 'failure'));

-- Instances with a transition that has failed.
CREATE INDEX redrive_instances_failed ON redrive_instances (machine, key) WHERE status = 'failed';

-- Completed instances by age, for their retention.
CREATE INDEX redrive_instances_completed ON redrive_instances (machine, entered_at) WHERE status = 'completed';

-- Instances by state, the longest there first.
CREATE INDEX redrive_instances_states ON redrive_instances (machine, state, entered_at);

-- Created last: of indexes that seem to cost the same, as all do while a table is empty, the planner takes the latest one,
-- and keeps that plan when the table has grown.
ALTER TABLE redrive_instances ADD PRIMARY KEY (machine, key);

-- Events of instances, and the moves that they made. The id of an event is also the id of the job of its transition.
CREATE TABLE redrive_moves (
    id bigint PRIMARY KEY,
    machine text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL CHECK (
        source IN ('send', 'next', 'timeout', 'failed_to', 'reset', 'migrate')
    ),
    status text COLLATE "C" NOT NULL CHECK (
        status IN ('queued', 'running', 'moved', 'failed', 'refused', 'ignored', 'late', 'skipped')
    ),
    from_state text,
    to_state text,
    event text,
    event_key text COLLATE "C",           -- unique in its instance
    digest text COLLATE "C",              -- of the type and the content of the event
    payload bytea,                        -- JSON, while it waits for its turn
    sent_at timestamptz NOT NULL,
    finished_at timestamptz,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    error text,
    failed_to text,
    actor text,
    noted boolean NOT NULL DEFAULT false, -- true: its instance shows that an event waits
    CHECK (status NOT IN ('running', 'moved', 'failed') OR to_state IS NOT NULL),
    CHECK ((status IN ('queued', 'running')) = (finished_at IS NULL)),
    CHECK (status <> 'queued' OR payload IS NOT NULL),
    CHECK (event_key IS NULL OR digest IS NOT NULL)
) WITH (
    fillfactor = 90, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01
);

-- The history of an instance.
CREATE INDEX redrive_moves_of ON redrive_moves (machine, key, id);

CREATE UNIQUE INDEX redrive_moves_keys ON redrive_moves (machine, key, event_key) WHERE event_key IS NOT NULL;

-- Events that wait for their turn.
CREATE INDEX redrive_moves_queued ON redrive_moves (machine, key, id) WHERE status = 'queued';

-- Events that wait and that their instances do not show yet. A sender locks no instance, so a worker marks it.
CREATE INDEX redrive_moves_new ON redrive_moves (machine, id) WHERE status = 'queued' AND NOT noted;

-- Events of topics. The id is taken when the row is inserted, one by one; see event_insert. The transaction id gives the
-- cursor of a subscription: an event is new if its transaction was not visible in the snapshot that was read last.
CREATE SEQUENCE redrive_event_ids AS bigint CACHE 1;

CREATE TABLE redrive_events (
    topic text COLLATE "C" NOT NULL CHECK (topic <> ''),
    id bigint NOT NULL,
    xid xid8 NOT NULL,                    -- of the outermost transaction
    key text COLLATE "C",                 -- events with the same key are delivered in order
    slot integer CHECK (slot >= 0),       -- a hash of the key, which chooses the shard; without a key the id does
    type text COLLATE "C" NOT NULL,
    version integer NOT NULL CHECK (version > 0),
    at timestamptz NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (topic, id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE INDEX redrive_events_new ON redrive_events (topic, xid, id);

-- Sizes of pages of events, by their last ids, so that a deletion by size need not read a topic.
CREATE TABLE redrive_event_pages (
    topic text COLLATE "C" NOT NULL,
    last_id bigint NOT NULL,
    bytes bigint NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (topic, last_id)
);

-- Subscriptions, as the code last declared them, and their pauses.
CREATE TABLE redrive_subscriptions (
    topic text COLLATE "C" NOT NULL CHECK (topic <> ''),
    name text COLLATE "C" NOT NULL CHECK (name <> ''),
    ordering text NOT NULL CHECK (ordering IN ('strict', 'key', 'none')),
    dead text NOT NULL CHECK (dead IN ('continue', 'hold')), -- what a dead event does to those behind it
    types text[],                         -- the types that it takes; NULL: all
    shards integer NOT NULL CHECK (shards > 0),
    declared_at timestamptz NOT NULL,
    paused_at timestamptz,
    behind bigint NOT NULL DEFAULT 0 CHECK (behind >= 0), -- events that were deleted by force before it had read them
    reshard integer CHECK (reshard > 0),  -- the number of shards that it will have
    dead_topic text COLLATE "C" CHECK (dead_topic <> ''), -- dead events are published there, with their errors
    PRIMARY KEY (topic, name),
    CHECK (dead_topic IS NULL OR dead = 'continue')
);

-- The cursors of subscriptions, one for each shard. A shard belongs to its feeder, a job; only the holder of the lease of
-- that job writes the cursor. An event is in the open window if it is not visible in `seen` and is visible in `until`.
CREATE TABLE redrive_shards (
    topic text COLLATE "C" NOT NULL,
    subscription text COLLATE "C" NOT NULL,
    shard integer NOT NULL CHECK (shard >= 0),
    job_id bigint NOT NULL,               -- its feeder
    epoch bigint NOT NULL DEFAULT 0,      -- grows with each move of the cursor by an operator
    turns bigint NOT NULL DEFAULT 0,      -- the writes of its feeders: one with a lost reply is not repeated
    seen pg_snapshot NOT NULL,
    until pg_snapshot,                    -- NULL: no window is open
    final pg_snapshot,                    -- the snapshot at which it ends, because the subscription gets other shards
    at_id bigint NOT NULL DEFAULT 0,      -- every event of the window up to this id is done
    done_id bigint NOT NULL DEFAULT 0,    -- and every one up to this id, except those of `unfinished`
    unfinished bigint[] NOT NULL DEFAULT '{}',
    ahead_id bigint NOT NULL DEFAULT 0,   -- no event of the window beyond this id has been handed to a handler
    stuck_id bigint,                      -- the event that no worker with this subscription can read
    stuck_why text,
    PRIMARY KEY (topic, subscription, shard),
    CHECK ((stuck_id IS NULL) = (stuck_why IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

CREATE UNIQUE INDEX redrive_shards_feeder ON redrive_shards (job_id);

-- Events that were ended by the transaction of a handler, or became jobs after a failure, until their shards have them
-- as done. The first of the two that commits ends the delivery.
CREATE TABLE redrive_done (
    topic text COLLATE "C" NOT NULL,
    subscription text COLLATE "C" NOT NULL,
    event_id bigint NOT NULL,
    epoch bigint NOT NULL,            -- of the shard under which it was delivered: a move of the cursor repeats it
    PRIMARY KEY (topic, subscription, event_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

-- Runs of workflows, one row each; the job of a run executes it and has its state.
CREATE TABLE redrive_runs (
    job_id bigint PRIMARY KEY,
    workflow text COLLATE "C" NOT NULL CHECK (workflow <> ''),
    id text COLLATE "C" NOT NULL CHECK (id <> ''),
    version integer NOT NULL CHECK (version > 0),  -- of the code that started it
    digest bigint NOT NULL,               -- of its arguments: the same id with other arguments is an error
    epoch integer NOT NULL DEFAULT 0 CHECK (epoch >= 0),  -- restarts
    parent_id bigint,                     -- the job of the run that waits for it, and the path of the step there
    parent_path text COLLATE "C",
    forked_from bigint,
    paused_at timestamptz,
    paused_until timestamptz,
    paused_why text,
    cancel_at timestamptz,                -- when its cancellation was requested; delivered at its next step
    cancel_why text,
    set_values bytea,                     -- flow.set, a JSON object
    UNIQUE (workflow, id),
    CHECK ((parent_id IS NULL) = (parent_path IS NULL)),
    CHECK (parent_id <> job_id),
    CHECK ((paused_at IS NULL) = (paused_why IS NULL)),
    CHECK (paused_until IS NULL OR paused_at IS NOT NULL),
    CHECK ((cancel_at IS NULL) = (cancel_why IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX redrive_runs_children ON redrive_runs (parent_id) WHERE parent_id IS NOT NULL;

-- Recorded steps of runs, one row each, identified by the path of the call in its run. A row is written once, by the
-- transaction that settles attempts, under the lease of its run; only a step that waits is written again.
CREATE TABLE redrive_steps (
    run_id bigint NOT NULL,
    path text COLLATE "C" NOT NULL CHECK (path <> ''),
    lease_id bigint NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (
        kind IN ('step', 'undo', 'sleep', 'wait', 'event', 'call', 'gather', 'patch', 'cancel', 'value')
    ),
    name text COLLATE "C" NOT NULL,
    outcome text COLLATE "C" NOT NULL CHECK (outcome IN ('ok', 'failed', 'waiting', 'running', 'timed_out', 'dropped')),
    at timestamptz NOT NULL,              -- its end, or the start of its wait
    took interval NOT NULL CHECK (took >= interval '0'),
    tries integer NOT NULL CHECK (tries >= 0),
    due_at timestamptz,                   -- next try, end of a sleep, timeout of a wait, end of a lease at the gate
    digest bigint,                        -- of its arguments
    result bytea,
    error text,                           -- JSON
    history text,                         -- JSON: the failed tries, and the numbers that the policy keeps
    ref bigint,                           -- the job of a child run, the signal that a wait received
    seq bigint,                           -- the place of its end among those that the body received; beside named calls
    PRIMARY KEY (run_id, path),
    -- only functions are tried, and only what was tried or waited for can fail
    CHECK (tries = 0 OR kind IN ('step', 'undo')),
    CHECK (outcome <> 'failed' OR kind IN ('step', 'undo', 'call', 'wait', 'event')),
    CHECK (outcome <> 'failed' OR error IS NOT NULL),
    -- the function of a step may return after its time limit
    CHECK (result IS NULL OR outcome = 'ok' OR kind = 'step'),
    -- a step waits for its next try, which has a time; only waits time out
    CHECK (outcome <> 'waiting' OR kind IN ('step', 'undo', 'sleep', 'wait', 'event', 'call')),
    CHECK (outcome <> 'waiting' OR kind IN ('sleep', 'wait', 'event', 'call') OR (due_at IS NOT NULL AND error IS NOT NULL)),
    CHECK (outcome <> 'running' OR (kind = 'step' AND due_at IS NOT NULL)),
    CHECK (outcome <> 'timed_out' OR kind IN ('wait', 'event', 'call')),
    CHECK (kind <> 'sleep' OR due_at IS NOT NULL OR outcome = 'dropped'),
    CHECK (outcome <> 'dropped' OR (seq IS NULL AND kind IN ('step', 'sleep', 'wait', 'event', 'call'))),
    CHECK (kind <> 'call' OR ref IS NOT NULL OR outcome = 'failed') -- a child that could not be started
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.02);

-- Steps that wait for their next try, by its time.
CREATE INDEX redrive_steps_retrying ON redrive_steps (due_at, run_id) WHERE outcome = 'waiting' AND tries > 0;

-- Undos that have failed: the effects of their steps stay.
CREATE INDEX redrive_steps_not_undone ON redrive_steps (run_id, path) WHERE kind = 'undo' AND outcome = 'failed';

-- Waits for emitted values, by name.
CREATE INDEX redrive_steps_events ON redrive_steps (name, run_id) WHERE outcome = 'waiting' AND kind = 'event';

-- Signals to runs. Senders only insert, so that an open transaction of a sender blocks no run. A signal is pending until
-- it was offered to its run, which is woken if it waits for it.
CREATE TABLE redrive_signals (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL CHECK (name <> ''),
    key text COLLATE "C",
    payload bytea,
    at timestamptz NOT NULL,
    path text COLLATE "C",                -- of the step that received it; NULL: unread
    pending boolean NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX redrive_signals_of ON redrive_signals (run_id, id);
CREATE UNIQUE INDEX redrive_signals_keys ON redrive_signals (run_id, name, key) WHERE key IS NOT NULL;
CREATE INDEX redrive_signals_pending ON redrive_signals (id) WHERE pending;

-- Emitted values: the first write of a name wins, and every run that waits for it is woken. A value is pending until no
-- run can wait for it without having seen it.
CREATE TABLE redrive_emits (
    name text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
    payload bytea,
    at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,      -- deleted after that
    pending boolean NOT NULL,
    noticed xid8                          -- transactions from this one on began after it was noticed
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX redrive_emits_pending ON redrive_emits (name) WHERE pending;
CREATE INDEX redrive_emits_expiring ON redrive_emits (expires_at);

-- Sums of ended attempts, by minute, queue and task, for charts. A worker writes the absolute values of its own rows, so
-- that no two transactions write the same row. Old rows are rolled up: their worker is 0, and their span is longer.
CREATE TABLE redrive_minutes (
    at timestamptz NOT NULL,              -- the beginning of the span
    worker_id bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    succeeded bigint NOT NULL,
    retried bigint NOT NULL,
    died bigint NOT NULL,
    snoozed bigint NOT NULL,
    lost bigint NOT NULL,
    cancelled bigint NOT NULL,
    took integer[] NOT NULL,              -- attempts by the time that they took, in buckets
    tries integer[] NOT NULL,             -- attempts that were retries, by their number
    PRIMARY KEY (at, worker_id, queue, task)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

-- The jobs of each queue by state, once a minute, written by the worker that comes first. Old rows become fewer.
CREATE TABLE redrive_depths (
    at timestamptz NOT NULL,              -- a whole minute
    queue text COLLATE "C" NOT NULL,
    due bigint NOT NULL,
    later bigint NOT NULL,
    running bigint NOT NULL,
    waiting bigint NOT NULL,
    dead bigint NOT NULL,
    oldest_for interval,                  -- the time since which the first due job is due
    due_capped boolean NOT NULL,          -- there may have been more due jobs
    lag bigint,                           -- of a subscription, whose deliveries are in the queue: its unfinished events
    lag_for interval,                     -- the time since which the first of these is published
    PRIMARY KEY (at, queue)
);

-- Error groups. Workers write the first and the last failure that they have seen; a repeated write changes nothing.
CREATE TABLE redrive_errors (
    fingerprint text COLLATE "C" PRIMARY KEY,
    task text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    type text NOT NULL,
    title text NOT NULL,
    frame text NOT NULL,
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    last_job_id bigint NOT NULL,
    muted_at timestamptz,                 -- NULL: it is not muted
    muted_until timestamptz,              -- NULL: until it fails again
    CHECK (first_at <= last_at),
    CHECK (muted_at IS NOT NULL OR muted_until IS NULL)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX redrive_errors_latest ON redrive_errors (last_at, fingerprint);

-- The failures of each error group within an hour, as absolute values of one worker.
CREATE TABLE redrive_error_hours (
    fingerprint text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    worker_id bigint NOT NULL,
    failures bigint NOT NULL,
    deaths bigint NOT NULL,
    PRIMARY KEY (fingerprint, at, worker_id),
    CHECK (deaths <= failures)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);

-- The audit log: each change made by an operator.
CREATE TABLE redrive_audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    details text NOT NULL,                -- JSON
    operation_id bigint,                  -- the bulk operation of which it is a part
    about text COLLATE "C"                -- what was changed, as queue:mail or job:17; NULL: several
);

CREATE INDEX redrive_audit_operations ON redrive_audit (operation_id, id) WHERE operation_id IS NOT NULL;
CREATE INDEX redrive_audit_about ON redrive_audit (about, id) WHERE about IS NOT NULL;

-- Actions on all jobs that match a filter, carried out in batches by any process. The lock of a row is held while a
-- batch is written, so that one process at a time works on it.
CREATE TABLE redrive_operations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action text COLLATE "C" NOT NULL CHECK (action IN ('redrive', 'cancel', 'repolicy', 'undo')),
    wanted text NOT NULL,                 -- the filter, JSON
    options text NOT NULL,                -- JSON
    digest text COLLATE "C" NOT NULL,     -- of all that distinguishes two operations
    undoes bigint,                        -- the operation that this one takes back
    actor text NOT NULL,
    rate text,                            -- jobs per time; NULL: no limit
    state text COLLATE "C" NOT NULL CHECK (state IN ('running', 'stopped', 'done')),
    bound_id bigint NOT NULL,             -- the newest job, and the time, of the preview
    frozen_at timestamptz NOT NULL,
    matched bigint CHECK (matched >= 0),  -- NULL: more than are counted
    last_id bigint NOT NULL,              -- the last job, or line of the audit log, that was read
    done bigint NOT NULL DEFAULT 0 CHECK (done >= 0),
    kept bigint NOT NULL DEFAULT 0 CHECK (kept >= 0),
    next_at timestamptz NOT NULL,         -- when the next job is due
    ended_at timestamptz,
    last_error text,
    CHECK ((action = 'undo') = (undoes IS NOT NULL)),
    CHECK ((state = 'running') = (ended_at IS NULL))
);

CREATE UNIQUE INDEX redrive_operations_running ON redrive_operations (digest) WHERE state = 'running';
CREATE INDEX redrive_operations_next ON redrive_operations (next_at) WHERE state = 'running';
CREATE UNIQUE INDEX redrive_operations_undoes ON redrive_operations (undoes) WHERE undoes IS NOT NULL;

-- Requests of programs that carry a key, for a day: a repeated one is answered as the first one was.
CREATE TABLE redrive_requests (
    actor text NOT NULL,
    key text NOT NULL,
    digest text NOT NULL,                 -- of the content: the same key with another content is refused
    begun_at timestamptz NOT NULL,
    answer bytea,                         -- NULL: it has not ended, or its process died
    PRIMARY KEY (actor, key)
);

CREATE INDEX redrive_requests_old ON redrive_requests (begun_at);

-- Logins on the dashboard. The cookie has a random text, and this table its digest, so that a copy of the table allows no login.
CREATE TABLE redrive_sessions (
    digest text PRIMARY KEY,
    name text NOT NULL,                   -- of the user
    account text NOT NULL,                -- digest of the account at the login: the session ends when it changes
    expires_at timestamptz NOT NULL
);

CREATE INDEX redrive_sessions_old ON redrive_sessions (expires_at);

-- Deletes the rows that belong to deleted jobs, with one statement for each table, for any number of jobs.
CREATE FUNCTION redrive_forget() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM redrive_keys WHERE job_id IN (SELECT id FROM gone);
    DELETE FROM redrive_payloads WHERE job_id IN (SELECT id FROM gone);
    DELETE FROM redrive_results WHERE job_id IN (SELECT id FROM gone);
    DELETE FROM redrive_attempts WHERE job_id IN (SELECT id FROM gone);
    DELETE FROM redrive_progress WHERE job_id IN (SELECT id FROM gone);
    DELETE FROM redrive_traces WHERE job_id IN (SELECT id FROM gone);
    DELETE FROM redrive_tags WHERE job_id IN (SELECT id FROM gone);
    DELETE FROM redrive_signals WHERE run_id IN (SELECT id FROM gone);
    DELETE FROM redrive_steps WHERE run_id IN (SELECT id FROM gone);
    DELETE FROM redrive_runs WHERE job_id IN (SELECT id FROM gone);
    RETURN NULL;
END
$$;

CREATE TRIGGER redrive_jobs_forget AFTER DELETE ON redrive_jobs
REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION redrive_forget();

-- The unique id of this database.
INSERT INTO redrive_meta (key, value) VALUES ('uid', left(replace(gen_random_uuid()::text, '-', ''), 16));
