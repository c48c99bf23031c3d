-- The schema of redrive on SQLite. It is the first migration as well.
--
-- Instants are whole microseconds since 1970 in UTC and end in _at; spans are microseconds and end in _for or _delay.
-- Tables group columns by how often they change: redrive_jobs is narrow and updated often; payloads, results, policies
-- and attempts are written once. A claim therefore never rewrites a payload.

-- The database's clock; statements read it only through this view. SQLite's resolution is one millisecond.
CREATE VIEW redrive_clock AS
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AS now;

-- The identity of this database, and the version of its schema.
CREATE TABLE redrive_meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Sequences that return each number once: job ids, lease ids, worker ids.
CREATE TABLE redrive_sequences (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Policies. Jobs refer to them by the digest of their text.
CREATE TABLE redrive_policies (
    digest TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    retired_at INTEGER                    -- when no job had it; deleted a day later unless an enqueue uses it again
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_workers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    host TEXT,
    pid INTEGER,
    birth TEXT,                           -- distinguishes it from a later process with the same pid on the host
    lock_id INTEGER,                      -- PostgreSQL: the advisory lock that its session holds
    locked_in INTEGER,                    -- PostgreSQL: the start of the server in which it was seen to hold it
    concurrency INTEGER NOT NULL CHECK (concurrency > 0),
    queues TEXT,                          -- a JSON list; NULL: all queues
    excluded TEXT,                        -- a JSON list: queues that it does not serve
    tasks TEXT,                           -- a JSON list: the tasks that it claims; NULL: all tasks
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    stopped_at INTEGER,
    late_at INTEGER,                      -- when a sweep last found its heartbeat late
    resumed_at INTEGER,                   -- its first heartbeat after a long silence
    trouble TEXT,                         -- its background tasks that fail because of a defect, with the errors
    version TEXT,                         -- the version of its redrive
    build TEXT,                           -- of its code
    loop_lag_for INTEGER,                 -- the time for which its event loop had not run at its last heartbeat
    CHECK (expires_at >= heartbeat_at)    -- a heartbeat never shortens the lease
) STRICT;

-- The builds of the code, each with the first start of a worker that had it, for charts.
CREATE TABLE redrive_builds (
    build TEXT PRIMARY KEY,
    first_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Handlers that continue after their attempts have ended: cancelled ones that have not stopped yet, and threads beyond
-- their timeout. They occupy slots of their queues until they have stopped or their worker is removed.
CREATE TABLE redrive_unstopped (
    lease_id INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL,
    queue TEXT NOT NULL,
    partition TEXT,
    worker_id INTEGER NOT NULL REFERENCES redrive_workers (id) ON DELETE CASCADE
) STRICT;

CREATE INDEX redrive_unstopped_of ON redrive_unstopped (queue, partition);

-- Queues with settings: paused, limited or ordered ones, and those with partitions served in rotation. Operators change
-- the settings while workers run; they apply from the next claim on.
CREATE TABLE redrive_queues (
    name TEXT PRIMARY KEY CHECK (name <> ''),
    paused_at INTEGER,
    paused_by TEXT,                                       -- the operator who paused it; NULL: the code
    concurrency INTEGER CHECK (concurrency >= 0),         -- running attempts, in all workers together
    per_partition INTEGER CHECK (per_partition > 0),      -- running attempts of each partition
    rate_count INTEGER CHECK (rate_count > 0),            -- starts within any span of rate_for
    rate_for INTEGER CHECK (rate_for > 0),
    partition_rate_count INTEGER CHECK (partition_rate_count > 0), -- starts of each partition within any span
    partition_rate_for INTEGER CHECK (partition_rate_for > 0),
    ordered INTEGER NOT NULL DEFAULT 0 CHECK (ordered IN (0, 1)),  -- each partition runs one job at a time, in order
    aging_for INTEGER CHECK (aging_for > 0),              -- each such wait raises a job by one priority
    turn TEXT,                                            -- the partition served last; the next one is first
    changed_at INTEGER,                                   -- by an operator; NULL: no operator has, and code may
    set_at INTEGER,                                       -- when code or an operator set the current values
    CHECK ((rate_count IS NULL) = (rate_for IS NULL)),
    CHECK ((partition_rate_count IS NULL) = (partition_rate_for IS NULL))
) STRICT, WITHOUT ROWID;

-- The latest starts of each queue with a rate, as many as its rates need.
CREATE TABLE redrive_starts (
    queue TEXT NOT NULL REFERENCES redrive_queues (name) ON DELETE CASCADE,
    lease_id INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    partition TEXT,
    PRIMARY KEY (queue, lease_id)
) STRICT, WITHOUT ROWID;

-- Checks of each row use OR, which stops at the first match. For IN, SQLite builds a table of the list for each row,
-- which took a third of the time of a job.
CREATE TABLE redrive_jobs (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL CHECK (task <> ''),
    queue TEXT NOT NULL CHECK (queue <> ''),
    priority INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (
        state = 'ready' OR state = 'running' OR state = 'waiting'
        OR state = 'succeeded' OR state = 'dead' OR state = 'cancelled'
    ),
    hold TEXT CHECK (
        hold IS NULL
        OR hold IN (
            'delay', 'retry', 'snooze', 'release', 'unknown_task', 'bad_payload', 'bad_policy', 'lost', 'redrive', 'debounce', 'breaker',
            'parked', 'paused', 'held', 'batch'
        )
    ),
    policy TEXT NOT NULL REFERENCES redrive_policies (digest),
    partition TEXT CHECK (partition <> ''), -- a tenant or account within its queue
    key TEXT,                             -- unique in its task
    key_until TEXT CHECK (key_until IS NULL OR key_until = 'start' OR key_until = 'end'),
    origin TEXT,                          -- cron:name/instant, machine:name/key; NULL: enqueued by the application
    slot TEXT,                            -- the limited queue in which this attempt occupies a slot
    parent_id INTEGER REFERENCES redrive_jobs (id),
    salt INTEGER NOT NULL,                -- random part of its idempotency key, because a database that is restored
                                          -- from a backup assigns its id again
    enqueued_at INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    latest_at INTEGER,                    -- a debounced job is not postponed beyond this
    expires_at INTEGER,                   -- a job that has not started by then is cancelled
    started_at INTEGER,
    claimed_at INTEGER,
    finished_at INTEGER,
    caught_at INTEGER,
    -- When the jobs behind it could pass: when it died, by the rule of its subscription, or later, by an operator.
    skipped_at INTEGER,
    timeout_for INTEGER CHECK (timeout_for > 0), -- that of its policy; NULL: that of an attempt without one
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    crashes INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    snoozes INTEGER NOT NULL DEFAULT 0 CHECK (snoozes >= 0),
    redrives INTEGER NOT NULL DEFAULT 0 CHECK (redrives >= 0),
    by_rule TEXT,                         -- a JSON list: the failures matched by each rule of the policy
    last_delay INTEGER,
    unreadable_at INTEGER,                -- the time since which no worker can read its arguments
    lease_id INTEGER,
    worker_id INTEGER,
    success_lease_id INTEGER,             -- the lease and the worker of the attempt that succeeded; its history entry is
    success_worker_id INTEGER,            -- this row, see redrive_history
    fingerprint TEXT,                     -- the error group of its last failure
    reason TEXT,
    error TEXT,
    note TEXT,
    -- a job has a lease if and only if an attempt of it is open
    CHECK ((state = 'running' OR state = 'waiting') = (lease_id IS NOT NULL)),
    CHECK ((lease_id IS NULL) = (worker_id IS NULL)),
    CHECK (lease_id IS NULL OR claimed_at IS NOT NULL),
    -- a job has succeeded if and only if an attempt of it has
    CHECK ((state = 'succeeded') = (success_lease_id IS NOT NULL)),
    CHECK ((success_lease_id IS NULL) = (success_worker_id IS NULL)),
    CHECK (success_lease_id IS NULL OR claimed_at IS NOT NULL),
    -- only running jobs occupy a slot
    CHECK (slot IS NULL OR state = 'running'),
    CHECK ((key IS NULL) = (key_until IS NULL)),
    -- it has a finishing time if and only if it is final
    CHECK ((state = 'succeeded' OR state = 'dead' OR state = 'cancelled') = (finished_at IS NOT NULL)),
    -- only ready jobs are held, and attempts that ended but cannot be decided
    CHECK (hold IS NULL OR state = 'ready' OR (hold = 'bad_policy' AND (state = 'running' OR state = 'waiting'))),
    -- only dead jobs are caught
    CHECK (caught_at IS NULL OR state = 'dead'),
    CHECK (skipped_at IS NULL OR state = 'dead'),
    -- an expired job never starts
    CHECK (started_at IS NULL OR expires_at IS NULL OR started_at < expires_at)
) STRICT;

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
WITH RECURSIVE lane (id, queue, priority, task) AS (
    SELECT first.id, first.queue, first.priority, first.task
    FROM (
        SELECT id, queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL ORDER BY queue, priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.queue, job.priority, job.task
    FROM lane
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL
                AND queue = lane.queue AND priority = lane.priority AND task > lane.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority > lane.priority
            ORDER BY priority, task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue > lane.queue
            ORDER BY queue, priority, task LIMIT 1
        )
    )
)
SELECT queue, priority, task FROM lane
WHERE NOT EXISTS (SELECT 1 FROM redrive_queues WHERE name = lane.queue);

-- The lanes of the other queues, unless they are paused; separate for jobs with and without a partition.
CREATE VIEW redrive_special_lanes AS
WITH RECURSIVE loose (id, queue, priority, task) AS (
    SELECT job.id, job.queue, job.priority, job.task
    FROM redrive_queues AS known
    JOIN redrive_jobs AS job ON job.id = (
        SELECT id FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = known.name
        ORDER BY priority, task LIMIT 1
    )
    WHERE known.paused_at IS NULL
    UNION ALL
    SELECT job.id, job.queue, job.priority, job.task
    FROM loose
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL
                AND queue = loose.queue AND priority = loose.priority AND task > loose.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = loose.queue AND priority > loose.priority
            ORDER BY priority, task LIMIT 1
        )
    )
),
parted (id, queue, priority, task) AS (
    SELECT first.id, first.queue, first.priority, first.task
    FROM (
        SELECT id, queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL ORDER BY queue, priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.queue, job.priority, job.task
    FROM parted
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL
                AND queue = parted.queue AND priority = parted.priority AND task > parted.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL
                AND queue = parted.queue AND priority > parted.priority
            ORDER BY priority, task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue > parted.queue
            ORDER BY queue, priority, task LIMIT 1
        )
    )
)
SELECT queue, priority, task, 0 AS is_parted FROM loose
UNION ALL
SELECT queue, priority, task, 1 AS is_parted FROM parted
WHERE NOT EXISTS (SELECT 1 FROM redrive_queues WHERE name = parted.queue AND paused_at IS NOT NULL);

-- The lanes of all queues, also of paused ones, for counts; separate for jobs with and without a partition.
CREATE VIEW redrive_ready_lanes AS
WITH RECURSIVE loose (id, queue, priority, task) AS (
    SELECT first.id, first.queue, first.priority, first.task
    FROM (
        SELECT id, queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL ORDER BY queue, priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.queue, job.priority, job.task
    FROM loose
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL
                AND queue = loose.queue AND priority = loose.priority AND task > loose.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = loose.queue AND priority > loose.priority
            ORDER BY priority, task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue > loose.queue
            ORDER BY queue, priority, task LIMIT 1
        )
    )
),
parted (id, queue, priority, task) AS (
    SELECT first.id, first.queue, first.priority, first.task
    FROM (
        SELECT id, queue, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL ORDER BY queue, priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.queue, job.priority, job.task
    FROM parted
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL
                AND queue = parted.queue AND priority = parted.priority AND task > parted.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = parted.queue AND priority > parted.priority
            ORDER BY priority, task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue > parted.queue
            ORDER BY queue, priority, task LIMIT 1
        )
    )
)
SELECT queue, priority, task, 0 AS is_parted FROM loose
UNION ALL
SELECT queue, priority, task, 1 AS is_parted FROM parted;

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
-- With the columns of its condition, so that a count reads the index alone.
CREATE INDEX redrive_jobs_grouped ON redrive_jobs (fingerprint, id, state, caught_at, skipped_at, finished_at)
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
    kind TEXT NOT NULL CHECK (kind = 'unique' OR kind = 'idempotency'),
    scope TEXT NOT NULL,                  -- the task of a unique key; '' for idempotency keys
    key TEXT NOT NULL,
    -- deferred, because a job is inserted after its keys
    job_id INTEGER NOT NULL REFERENCES redrive_jobs (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    PRIMARY KEY (kind, scope, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX redrive_keys_of ON redrive_keys (job_id);

CREATE TABLE redrive_payloads (
    job_id INTEGER PRIMARY KEY REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    payload BLOB NOT NULL
) STRICT;

CREATE TABLE redrive_results (
    job_id INTEGER PRIMARY KEY REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    result BLOB NOT NULL
) STRICT;

-- Closed attempts that did not succeed, one row each, never changed. The open attempt and the one that succeeded are
-- in the row of the job.
CREATE TABLE redrive_attempts (
    job_id INTEGER NOT NULL REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    lease_id INTEGER NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    worker_id INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (
        outcome = 'failed' OR outcome = 'snoozed' OR outcome = 'cancelled' OR outcome = 'lost' OR outcome = 'released'
    ),
    reason TEXT,
    stage TEXT CHECK (stage IS NULL OR stage IN ('not_sent', 'in_flight', 'answered')),
    error_type TEXT,
    error TEXT,
    traceback TEXT,
    nominal INTEGER CHECK (nominal >= 0),
    delay INTEGER CHECK (delay >= 0),
    rule TEXT,
    verdict TEXT,
    PRIMARY KEY (job_id, lease_id),
    -- a failure has a reason
    CHECK ((outcome <> 'failed' AND outcome <> 'lost') OR (reason IS NOT NULL AND rule IS NOT NULL))
) STRICT, WITHOUT ROWID;

INSERT INTO redrive_sequences (name, value) VALUES ('job', 0), ('lease', 0), ('worker', 0);

INSERT INTO redrive_meta (key, value) VALUES ('uid', lower(hex(randomblob(8))));

-- Closed attempts, the failed ones and those that succeeded. A success has no row of its own: it is the last attempt of
-- its job, and the row of the job has all that is stored of it.
CREATE VIEW redrive_history AS
SELECT
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
FROM redrive_attempts
UNION ALL
SELECT
    id, success_lease_id, attempt, success_worker_id, claimed_at, finished_at, 'succeeded', NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL
FROM redrive_jobs
WHERE success_lease_id IS NOT NULL;

-- The latest progress report of each handler.
CREATE TABLE redrive_progress (
    job_id INTEGER PRIMARY KEY REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    lease_id INTEGER NOT NULL,
    details TEXT NOT NULL,                -- JSON
    at INTEGER NOT NULL
) STRICT;

-- Trace contexts, which link the attempts of a job to the trace of its enqueue; most jobs have none.
CREATE TABLE redrive_traces (
    job_id INTEGER PRIMARY KEY REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    trace TEXT NOT NULL
) STRICT;

-- Tags, by which operators and programs find jobs; most jobs have none.
CREATE TABLE redrive_tags (
    tag TEXT NOT NULL CHECK (tag <> ''),
    job_id INTEGER NOT NULL REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    PRIMARY KEY (tag, job_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX redrive_tags_of ON redrive_tags (job_id);

-- Schedules as the code last declared them: crons and refreshes.
CREATE TABLE redrive_schedules (
    name TEXT PRIMARY KEY CHECK (name <> ''),
    kind TEXT NOT NULL CHECK (kind = 'cron' OR kind = 'refresh'),
    document TEXT NOT NULL,               -- JSON: when it is due, and its job template
    timing TEXT NOT NULL,                 -- digest of the part that determines due times
    declared_at INTEGER NOT NULL,
    paused_at INTEGER,
    paused_by TEXT,
    resumed_at INTEGER,                   -- occurrences planned during the last pause are skipped
    next_at INTEGER,                      -- of a cron: the next occurrence, not decided yet
    job_id INTEGER,                       -- of a cron: the latest job
    queued_at INTEGER,                    -- of a cron: the occurrence that waits for the end of that job
    created INTEGER NOT NULL CHECK (created IN (0, 1)), -- a cron that was created at run time: every worker starts it
    CHECK (kind = 'cron' OR NOT created),
    CHECK (kind = 'cron' OR (next_at IS NULL AND job_id IS NULL AND queued_at IS NULL))
) STRICT, WITHOUT ROWID;

-- Decisions on the occurrences of crons, one row each, so that each occurrence is decided once.
CREATE TABLE redrive_occurrences (
    schedule TEXT NOT NULL,
    occurs_at INTEGER NOT NULL,
    decided_at INTEGER NOT NULL,
    decision TEXT NOT NULL CHECK (decision IN ('started', 'queued', 'skipped', 'missed')),
    job_id INTEGER,
    note TEXT,
    PRIMARY KEY (schedule, occurs_at),
    CHECK ((decision = 'started') = (job_id IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX redrive_occurrences_old ON redrive_occurrences (decided_at);

-- Tracked items of refreshes with their state.
CREATE TABLE redrive_refreshes (
    schedule TEXT NOT NULL,
    key TEXT NOT NULL CHECK (key <> ''),
    payload BLOB NOT NULL,
    own TEXT,                             -- the item's own policy as JSON; NULL: that of the schedule
    timing TEXT NOT NULL,                 -- digest of the policy from which its times were computed
    tracked_at INTEGER NOT NULL,
    refresh_at INTEGER,
    deadline_at INTEGER,
    planned_at INTEGER,
    started_at INTEGER,
    due_at INTEGER,
    failing_since INTEGER,
    succeeded_at INTEGER,
    sweep_at INTEGER,                     -- the next deadline or time limit
    attempt_no INTEGER NOT NULL CHECK (attempt_no >= 0),
    attempts_since_success INTEGER NOT NULL CHECK (attempts_since_success >= 0),
    job_id INTEGER,                       -- the job of the open attempt; its id is the attempt's token
    disabled_until_update INTEGER NOT NULL CHECK (disabled_until_update IN (0, 1)),
    disabled_reason TEXT,
    completed INTEGER NOT NULL CHECK (completed IN (0, 1)),
    paused INTEGER NOT NULL CHECK (paused IN (0, 1)),
    PRIMARY KEY (schedule, key),
    -- an attempt runs if and only if it has a deadline
    CHECK ((job_id IS NULL) = (deadline_at IS NULL)),
    CHECK (job_id IS NULL OR sweep_at IS NOT NULL),
    -- a disabled item has a reason, and no due time until the next update
    CHECK (disabled_until_update = (disabled_reason IS NOT NULL)),
    CHECK (NOT disabled_until_update OR (refresh_at IS NULL AND job_id IS NULL AND sweep_at IS NULL))
) STRICT;

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
    machine TEXT NOT NULL CHECK (machine <> ''),
    key TEXT NOT NULL CHECK (key <> ''),
    state TEXT,               -- NULL: before its first transition has ended
    to_state TEXT,
    status TEXT NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    job_id INTEGER,
    event TEXT,                           -- the type of the event of the transition
    moves INTEGER NOT NULL DEFAULT 0 CHECK (moves >= 0),
    created_at INTEGER NOT NULL,
    entered_at INTEGER NOT NULL,
    timeout_at INTEGER,               -- written with the move; a busy or failed instance does not time out
    timeout_event TEXT,
    timeout_payload BLOB,
    data BLOB,                           -- JSON
    error TEXT,
    version TEXT,                         -- digest of the definition at the last move
    waiting TEXT CHECK (waiting IN ('event', 'failure')), -- has its turn next; see redrive_moves.noted
    PRIMARY KEY (machine, key),
    -- a transition leads somewhere
    CHECK ((job_id IS NULL) = (to_state IS NULL)),
    CHECK ((job_id IS NULL) = (event IS NULL)),
    -- a failure belongs to a transition and has a TEXT; an instance without a transition is in a state or new
    CHECK (status <> 'failed' OR (job_id IS NOT NULL AND error IS NOT NULL)),
    CHECK (status <> 'completed' OR state IS NOT NULL),
    CHECK ((timeout_at IS NULL) = (timeout_event IS NULL)),
    CHECK ((timeout_at IS NULL) = (timeout_payload IS NULL))
) STRICT;

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

-- Events of instances, and the moves that they made. The id of an event is also the id of the job of its transition.
CREATE TABLE redrive_moves (
    id INTEGER PRIMARY KEY,
    machine TEXT NOT NULL,
    key TEXT NOT NULL,
    source TEXT NOT NULL CHECK (
        source IN ('send', 'next', 'timeout', 'failed_to', 'reset', 'migrate')
    ),
    status TEXT NOT NULL CHECK (
        status IN ('queued', 'running', 'moved', 'failed', 'refused', 'ignored', 'late', 'skipped')
    ),
    from_state TEXT,
    to_state TEXT,
    event TEXT,
    event_key TEXT,           -- unique in its instance
    digest TEXT,              -- of the type and the content of the event
    payload BLOB,                        -- JSON, while it waits for its turn
    sent_at INTEGER NOT NULL,
    finished_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    error TEXT,
    failed_to TEXT,
    actor TEXT,
    noted INTEGER NOT NULL DEFAULT 0 CHECK (noted = 0 OR noted = 1), -- 1: its instance shows that an event waits
    CHECK (to_state IS NOT NULL OR NOT (status = 'running' OR status = 'moved' OR status = 'failed')),
    CHECK ((status = 'queued' OR status = 'running') = (finished_at IS NULL)),
    CHECK (status <> 'queued' OR payload IS NOT NULL),
    CHECK (event_key IS NULL OR digest IS NOT NULL)
) STRICT;

-- The history of an instance.
CREATE INDEX redrive_moves_of ON redrive_moves (machine, key, id);

CREATE UNIQUE INDEX redrive_moves_keys ON redrive_moves (machine, key, event_key) WHERE event_key IS NOT NULL;

-- Events that wait for their turn.
CREATE INDEX redrive_moves_queued ON redrive_moves (machine, key, id) WHERE status = 'queued';

-- Events that wait and that their instances do not show yet. A sender locks no instance, so a worker marks it.
CREATE INDEX redrive_moves_new ON redrive_moves (machine, id) WHERE status = 'queued' AND noted = 0;

-- Events of topics. Ids are never used again, and the only writer gives them in the order of the commits: so they are the
-- cursor of a subscription.
CREATE TABLE redrive_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL CHECK (topic <> ''),
    key TEXT,                             -- events with the same key are delivered in order
    slot INTEGER CHECK (slot >= 0),       -- a hash of the key, which chooses the shard; without a key the id does
    type TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    at INTEGER NOT NULL,
    payload BLOB NOT NULL
) STRICT;

CREATE INDEX redrive_events_of ON redrive_events (topic, id);

-- Sizes of pages of events, by their last ids, so that a deletion by size need not read a topic.
CREATE TABLE redrive_event_pages (
    topic TEXT NOT NULL,
    last_id INTEGER NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (topic, last_id)
) STRICT, WITHOUT ROWID;

-- Subscriptions, as the code last declared them, and their pauses.
CREATE TABLE redrive_subscriptions (
    topic TEXT NOT NULL CHECK (topic <> ''),
    name TEXT NOT NULL CHECK (name <> ''),
    ordering TEXT NOT NULL CHECK (ordering IN ('strict', 'key', 'none')),
    dead TEXT NOT NULL CHECK (dead IN ('continue', 'hold')), -- what a dead event does to those behind it
    types TEXT,                           -- a JSON list: the types that it takes; NULL: all
    shards INTEGER NOT NULL CHECK (shards > 0),
    declared_at INTEGER NOT NULL,
    paused_at INTEGER,
    behind INTEGER NOT NULL DEFAULT 0 CHECK (behind >= 0), -- events that were deleted by force before it had read them
    reshard INTEGER CHECK (reshard > 0),  -- the number of shards that it will have
    dead_topic TEXT CHECK (dead_topic <> ''), -- dead events are published there, with their errors
    PRIMARY KEY (topic, name),
    CHECK (dead_topic IS NULL OR dead = 'continue')
) STRICT, WITHOUT ROWID;

-- The cursors of subscriptions, one for each shard. A shard belongs to its feeder, a job; only the holder of the lease of
-- that job writes the cursor. An event is in the open window if its id is above `seen` and not above `until`.
CREATE TABLE redrive_shards (
    topic TEXT NOT NULL,
    subscription TEXT NOT NULL,
    shard INTEGER NOT NULL CHECK (shard >= 0),
    job_id INTEGER NOT NULL,              -- its feeder
    epoch INTEGER NOT NULL DEFAULT 0,     -- grows with each move of the cursor by an operator
    turns INTEGER NOT NULL DEFAULT 0,     -- the writes of its feeders: one with a lost reply is not repeated
    seen TEXT NOT NULL,                   -- an id, as text: on other databases it is a snapshot
    until TEXT,                           -- NULL: no window is open
    final TEXT,                           -- the id at which it ends, because the subscription gets other shards
    at_id INTEGER NOT NULL DEFAULT 0,     -- every event of the window up to this id is done
    done_id INTEGER NOT NULL DEFAULT 0,   -- and every one up to this id, except those of `unfinished`, a JSON list
    unfinished TEXT NOT NULL DEFAULT '[]',
    ahead_id INTEGER NOT NULL DEFAULT 0,  -- no event of the window beyond this id has been handed to a handler
    stuck_id INTEGER,                     -- the event that no worker with this subscription can read
    stuck_why TEXT,
    PRIMARY KEY (topic, subscription, shard),
    FOREIGN KEY (topic, subscription) REFERENCES redrive_subscriptions (topic, name) ON DELETE CASCADE,
    CHECK ((stuck_id IS NULL) = (stuck_why IS NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX redrive_shards_feeder ON redrive_shards (job_id);

-- Events that were ended by the transaction of a handler, or became jobs after a failure, until their shards have them
-- as done. The first of the two that commits ends the delivery.
CREATE TABLE redrive_done (
    topic TEXT NOT NULL,
    subscription TEXT NOT NULL,
    event_id INTEGER NOT NULL,
    epoch INTEGER NOT NULL,           -- of the shard under which it was delivered: a move of the cursor repeats it
    PRIMARY KEY (topic, subscription, event_id),
    FOREIGN KEY (topic, subscription) REFERENCES redrive_subscriptions (topic, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Runs of workflows, one row each; the job of a run executes it and has its state.
CREATE TABLE redrive_runs (
    -- deferred, because a job is inserted after its run
    job_id INTEGER NOT NULL REFERENCES redrive_jobs (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    workflow TEXT NOT NULL CHECK (workflow <> ''),
    id TEXT NOT NULL CHECK (id <> ''),
    version INTEGER NOT NULL CHECK (version > 0), -- of the code that started it
    digest INTEGER NOT NULL,              -- of its arguments: the same id with other arguments is an error
    epoch INTEGER NOT NULL DEFAULT 0 CHECK (epoch >= 0), -- restarts
    parent_id INTEGER,                    -- the job of the run that waits for it, and the path of the step there
    parent_path TEXT,
    forked_from INTEGER,
    paused_at INTEGER,
    paused_until INTEGER,
    paused_why TEXT,
    cancel_at INTEGER,                    -- when its cancellation was requested; delivered at its next step
    cancel_why TEXT,
    set_values BLOB,                      -- flow.set, a JSON object
    PRIMARY KEY (workflow, id),
    CHECK ((parent_id IS NULL) = (parent_path IS NULL)),
    CHECK (parent_id IS NULL OR parent_id <> job_id),
    CHECK ((paused_at IS NULL) = (paused_why IS NULL)),
    CHECK (paused_until IS NULL OR paused_at IS NOT NULL),
    CHECK ((cancel_at IS NULL) = (cancel_why IS NULL))
) STRICT, WITHOUT ROWID;

-- Not UNIQUE in the table: Turso does not open a file of SQLite with such a table without rowids.
CREATE UNIQUE INDEX redrive_runs_job ON redrive_runs (job_id);

CREATE INDEX redrive_runs_children ON redrive_runs (parent_id) WHERE parent_id IS NOT NULL;

-- Recorded steps of runs, one row each, identified by the path of the call in its run. A row is written once, by the
-- transaction that settles attempts, under the lease of its run; only a step that waits is written again.
CREATE TABLE redrive_steps (
    run_id INTEGER NOT NULL REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    path TEXT NOT NULL CHECK (path <> ''),
    lease_id INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (
        kind IN ('step', 'undo', 'sleep', 'wait', 'event', 'call', 'gather', 'patch', 'cancel', 'value')
    ),
    name TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('ok', 'failed', 'waiting', 'running', 'timed_out', 'dropped')),
    at INTEGER NOT NULL,                  -- its end, or the start of its wait
    took INTEGER NOT NULL CHECK (took >= 0),
    tries INTEGER NOT NULL CHECK (tries >= 0),
    due_at INTEGER,                       -- next try, end of a sleep, timeout of a wait, end of a lease at the gate
    digest INTEGER,                       -- of its arguments
    result BLOB,
    error TEXT,                           -- JSON
    history TEXT,                         -- JSON: the failed tries, and the numbers that the policy keeps
    ref INTEGER,                          -- the job of a child run, the signal that a wait received
    seq INTEGER,                          -- the place of its end among those that the body received; beside named calls
    PRIMARY KEY (run_id, path),
    -- only functions are tried, and only what was tried or waited for can fail
    CHECK (tries = 0 OR kind = 'step' OR kind = 'undo'),
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
) STRICT, WITHOUT ROWID;

-- Steps that wait for their next try, by its time.
CREATE INDEX redrive_steps_retrying ON redrive_steps (due_at, run_id) WHERE outcome = 'waiting' AND tries > 0;

-- Undos that have failed: the effects of their steps stay.
CREATE INDEX redrive_steps_not_undone ON redrive_steps (run_id, path) WHERE kind = 'undo' AND outcome = 'failed';

-- Waits for emitted values, by name.
CREATE INDEX redrive_steps_events ON redrive_steps (name, run_id) WHERE outcome = 'waiting' AND kind = 'event';

-- Signals to runs. Senders only insert, so that an open transaction of a sender blocks no run. A signal is pending until
-- it was offered to its run, which is woken if it waits for it.
CREATE TABLE redrive_signals (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- a number is not used again, because a run reads signals in their order
    run_id INTEGER NOT NULL REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    name TEXT NOT NULL CHECK (name <> ''),
    key TEXT,
    payload BLOB,
    at INTEGER NOT NULL,
    path TEXT,                            -- of the step that received it; NULL: unread
    pending INTEGER NOT NULL CHECK (pending IN (0, 1))
) STRICT;

CREATE INDEX redrive_signals_of ON redrive_signals (run_id, id);
CREATE UNIQUE INDEX redrive_signals_keys ON redrive_signals (run_id, name, key) WHERE key IS NOT NULL;
CREATE INDEX redrive_signals_pending ON redrive_signals (id) WHERE pending;

-- Emitted values: the first write of a name wins, and every run that waits for it is woken. A value is pending until
-- every run that waits for it was woken.
CREATE TABLE redrive_emits (
    name TEXT PRIMARY KEY CHECK (name <> ''),
    payload BLOB,
    at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,          -- deleted after that
    pending INTEGER NOT NULL CHECK (pending IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE INDEX redrive_emits_pending ON redrive_emits (name) WHERE pending;
CREATE INDEX redrive_emits_expiring ON redrive_emits (expires_at);

-- Sums of ended attempts, by minute, queue and task, for charts. A worker writes the absolute values of its own rows, so
-- that no two transactions write the same row. Old rows are rolled up: their worker is 0, and their span is longer.
CREATE TABLE redrive_minutes (
    at INTEGER NOT NULL,                  -- the beginning of the span
    worker_id INTEGER NOT NULL,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    succeeded INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    died INTEGER NOT NULL,
    snoozed INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    took TEXT NOT NULL,                   -- JSON: attempts by the time that they took, in buckets
    tries TEXT NOT NULL,                  -- JSON: attempts that were retries, by their number
    PRIMARY KEY (at, worker_id, queue, task)
) STRICT, WITHOUT ROWID;

-- The jobs of each queue by state, once a minute, written by the worker that comes first. Old rows become fewer.
CREATE TABLE redrive_depths (
    at INTEGER NOT NULL,                  -- a whole minute
    queue TEXT NOT NULL,
    due INTEGER NOT NULL,
    later INTEGER NOT NULL,
    running INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    oldest_for INTEGER,                   -- the time since which the first due job is due
    due_capped INTEGER NOT NULL,          -- 1 if there may have been more due jobs
    lag INTEGER,                          -- of a subscription, whose deliveries are in the queue: its unfinished events
    lag_for INTEGER,                      -- the time since which the first of these is published
    PRIMARY KEY (at, queue)
) STRICT, WITHOUT ROWID;

-- Error groups. Workers write the first and the last failure that they have seen; a repeated write changes nothing.
CREATE TABLE redrive_errors (
    fingerprint TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    reason TEXT NOT NULL,
    type TEXT NOT NULL,
    title TEXT NOT NULL,
    frame TEXT NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    last_job_id INTEGER NOT NULL,
    muted_at INTEGER,                     -- NULL: it is not muted
    muted_until INTEGER,                  -- NULL: until it fails again
    CHECK (first_at <= last_at),
    CHECK (muted_at IS NOT NULL OR muted_until IS NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX redrive_errors_latest ON redrive_errors (last_at, fingerprint);

-- The failures of each error group within an hour, as absolute values of one worker.
CREATE TABLE redrive_error_hours (
    fingerprint TEXT NOT NULL,
    at INTEGER NOT NULL,
    worker_id INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    deaths INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, at, worker_id),
    CHECK (deaths <= failures)
) STRICT, WITHOUT ROWID;

-- The audit log: each change made by an operator.
CREATE TABLE redrive_audit (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    details TEXT NOT NULL,                -- JSON
    operation_id INTEGER,                 -- the bulk operation of which it is a part
    about TEXT                            -- what was changed, as queue:mail or job:17; NULL: several
) STRICT;

CREATE INDEX redrive_audit_operations ON redrive_audit (operation_id, id) WHERE operation_id IS NOT NULL;
CREATE INDEX redrive_audit_about ON redrive_audit (about, id) WHERE about IS NOT NULL;

-- Actions on all jobs that match a filter, carried out in batches by any process. The lock of a row is held while a
-- batch is written, so that one process at a time works on it.
CREATE TABLE redrive_operations (
    id INTEGER PRIMARY KEY,
    action TEXT NOT NULL CHECK (action IN ('redrive', 'cancel', 'repolicy', 'undo')),
    wanted TEXT NOT NULL,                 -- the filter, JSON
    options TEXT NOT NULL,                -- JSON
    digest TEXT NOT NULL,                 -- of all that distinguishes two operations
    undoes INTEGER,                       -- the operation that this one takes back
    actor TEXT NOT NULL,
    rate TEXT,                            -- jobs per time; NULL: no limit
    state TEXT NOT NULL CHECK (state IN ('running', 'stopped', 'done')),
    bound_id INTEGER NOT NULL,            -- the newest job, and the time, of the preview
    frozen_at INTEGER NOT NULL,
    matched INTEGER CHECK (matched >= 0), -- NULL: more than are counted
    last_id INTEGER NOT NULL,             -- the last job, or line of the audit log, that was read
    done INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0),
    kept INTEGER NOT NULL DEFAULT 0 CHECK (kept >= 0),
    next_at INTEGER NOT NULL,             -- when the next job is due
    ended_at INTEGER,
    last_error TEXT,
    CHECK ((action = 'undo') = (undoes IS NOT NULL)),
    CHECK ((state = 'running') = (ended_at IS NULL))
) STRICT;

CREATE UNIQUE INDEX redrive_operations_running ON redrive_operations (digest) WHERE state = 'running';
CREATE INDEX redrive_operations_next ON redrive_operations (next_at) WHERE state = 'running';
CREATE UNIQUE INDEX redrive_operations_undoes ON redrive_operations (undoes) WHERE undoes IS NOT NULL;

-- Requests of programs that carry a key, for a day: a repeated one is answered as the first one was.
CREATE TABLE redrive_requests (
    actor TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,                 -- of the content: the same key with another content is refused
    begun_at INTEGER NOT NULL,
    answer BLOB,                          -- NULL: it has not ended, or its process died
    PRIMARY KEY (actor, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX redrive_requests_old ON redrive_requests (begun_at);

-- Logins on the dashboard. The cookie has a random text, and this table its digest, so that a copy of the table allows no login.
CREATE TABLE redrive_sessions (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL,                   -- of the user
    account TEXT NOT NULL,                -- digest of the account at the login: the session ends when it changes
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX redrive_sessions_old ON redrive_sessions (expires_at);
