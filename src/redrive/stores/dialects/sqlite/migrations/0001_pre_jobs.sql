-- Jobs, attempts, workers: the first schema.

-- The one place that reads the clock of the database (ADR 0001). Milliseconds are what SQLite has.
CREATE VIEW redrive_clock AS
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AS now;

-- Who this database is, and which schema it has.
CREATE TABLE redrive_meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Numbers that are handed out once and never again: job ids, lease ids, worker ids.
CREATE TABLE redrive_sequences (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Policies, frozen into the jobs that name them by the digest of their text.
CREATE TABLE redrive_policies (
    digest TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    retired_at INTEGER                    -- no job had it; unless an enqueue uses it again, it is deleted a day later
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_workers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    host TEXT,
    pid INTEGER,
    birth TEXT,                           -- tells this process from a later one of the same number on the same host
    lock_id INTEGER,                      -- PostgreSQL: the lock that its session holds as long as it lives
    concurrency INTEGER NOT NULL CHECK (concurrency > 0),
    queues TEXT,                          -- a JSON list; NULL: all queues
    tasks TEXT,                           -- a JSON list: whose jobs it claims; NULL: all tasks
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    stopped_at INTEGER,
    late_at INTEGER,                      -- when a sweep last found its heartbeat to be late
    resumed_at INTEGER,                   -- its first heartbeat after a long silence
    trouble TEXT,                         -- which of its background duties fail because of a defect, and why
    CHECK (expires_at >= heartbeat_at)    -- a heartbeat never shortens a life
) STRICT;

-- Handlers that go on although their attempts have ended: cancelled ones that have not stopped yet, and threads beyond
-- their timeout. They take up places of their queues until they have stopped, or their worker is gone.
CREATE TABLE redrive_unstopped (
    lease_id INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL,
    queue TEXT NOT NULL,
    partition TEXT,
    worker_id INTEGER NOT NULL REFERENCES redrive_workers (id) ON DELETE CASCADE
) STRICT;

CREATE INDEX redrive_unstopped_of ON redrive_unstopped (queue, partition);

-- Queues that are not like the others: paused, limited or ordered, or served by turns. People change them while
-- workers run; the next claim obeys.
CREATE TABLE redrive_queues (
    name TEXT PRIMARY KEY CHECK (name <> ''),
    paused_at INTEGER,
    concurrency INTEGER CHECK (concurrency >= 0),         -- attempts at once, in all workers together
    per_partition INTEGER CHECK (per_partition > 0),      -- attempts at once of each partition
    rate_count INTEGER CHECK (rate_count > 0),            -- starts within any span of rate_for
    rate_for INTEGER CHECK (rate_for > 0),
    ordered INTEGER NOT NULL DEFAULT 0 CHECK (ordered IN (0, 1)),  -- each partition strictly one after the other
    aging_for INTEGER CHECK (aging_for > 0),              -- a job that waited so long counts as one priority higher
    turn TEXT,                                            -- the partition that was served last; the next one is first
    changed_at INTEGER,                                   -- by a person; NULL: nobody has set anything, and code may
    set_at INTEGER,                                       -- when code or a person has set what holds
    CHECK ((rate_count IS NULL) = (rate_for IS NULL))
) STRICT, WITHOUT ROWID;

-- The last starts of each queue with a rate, as many as the rate allows.
CREATE TABLE redrive_starts (
    queue TEXT NOT NULL REFERENCES redrive_queues (name) ON DELETE CASCADE,
    lease_id INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    PRIMARY KEY (queue, lease_id)
) STRICT, WITHOUT ROWID;

-- What is checked in every row is written with OR, which stops at the first hit. For IN, SQLite makes a table of the
-- list, anew for each row: that was a third of what a job costs the database.
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
            'delay', 'retry', 'snooze', 'release', 'unknown_task', 'bad_payload', 'bad_policy', 'lost', 'redrive', 'debounce', 'breaker'
        )
    ),
    policy TEXT NOT NULL REFERENCES redrive_policies (digest),
    partition TEXT CHECK (partition <> ''), -- whose turn it is in its queue: a tenant, an account
    key TEXT,                             -- unique in its task
    key_until TEXT CHECK (key_until IS NULL OR key_until = 'start' OR key_until = 'end'),
    origin TEXT,                          -- what it is for: cron:name/instant, refresh:name/key; NULL: a task by itself
    slot TEXT,                            -- the limited queue of which this attempt takes up a place
    parent_id INTEGER REFERENCES redrive_jobs (id),
    salt INTEGER NOT NULL,                -- random; a part of its idempotency key, because a database that is restored
                                          -- from a backup hands out its id again
    enqueued_at INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    latest_at INTEGER,                    -- a debounced job is not put off beyond this
    started_at INTEGER,
    claimed_at INTEGER,
    finished_at INTEGER,
    caught_at INTEGER,
    skipped_at INTEGER,
    timeout_for INTEGER NOT NULL DEFAULT 3600000000 CHECK (timeout_for > 0),
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    crashes INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    snoozes INTEGER NOT NULL DEFAULT 0 CHECK (snoozes >= 0),
    redrives INTEGER NOT NULL DEFAULT 0 CHECK (redrives >= 0),
    by_rule TEXT,                         -- a JSON list: failures matched by each rule of the policy
    last_delay INTEGER,
    unreadable_at INTEGER,                -- since when no worker has been able to read its arguments
    lease_id INTEGER,
    worker_id INTEGER,
    reason TEXT,
    error TEXT,
    note TEXT,
    -- a job has a lease if and only if an attempt of it is open
    CHECK ((state = 'running' OR state = 'waiting') = (lease_id IS NOT NULL)),
    CHECK ((lease_id IS NULL) = (worker_id IS NULL)),
    CHECK (lease_id IS NULL OR claimed_at IS NOT NULL),
    -- only what runs takes up a place
    CHECK (slot IS NULL OR state = 'running'),
    CHECK ((key IS NULL) = (key_until IS NULL)),
    -- it has a finishing time if and only if it is final
    CHECK ((state = 'succeeded' OR state = 'dead' OR state = 'cancelled') = (finished_at IS NOT NULL)),
    -- only what is ready is held back, and what is over and cannot be decided
    CHECK (hold IS NULL OR state = 'ready' OR (hold = 'bad_policy' AND (state = 'running' OR state = 'waiting'))),
    -- only the dead are caught
    CHECK (caught_at IS NULL OR state = 'dead'),
    CHECK (skipped_at IS NULL OR state = 'dead')
) STRICT;

-- What a claim walks: ready rows only, so that a million waiting retries or finished jobs cost it nothing. Within a
-- lane (queue, priority and task) it leads with the order of the claim. The task belongs to the lane because a worker
-- claims only the tasks that it has: it passes over a million jobs of another task by one probe. Jobs with a partition
-- stand apart: their partitions are served by turns.
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

-- The lanes of the other queues, unless they are paused; for jobs with and without a partition apart.
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

-- What the sweep walks.
CREATE INDEX redrive_jobs_running ON redrive_jobs (worker_id) WHERE state = 'running';
CREATE INDEX redrive_jobs_waiting ON redrive_jobs (scheduled_at) WHERE state = 'waiting';

-- What a claim of a limited queue counts.
CREATE INDEX redrive_jobs_slots ON redrive_jobs (slot, partition) WHERE slot IS NOT NULL;

-- What an ordered queue walks: the first of each line, whatever it is doing, blocks those behind it.
CREATE INDEX redrive_jobs_lines ON redrive_jobs (queue, partition, id)
WHERE partition IS NOT NULL AND (
    state = 'ready' OR state = 'running' OR state = 'waiting'
    OR (state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL)
);

-- What redrive and people walk.
CREATE INDEX redrive_jobs_dead ON redrive_jobs (id) WHERE state = 'dead' AND caught_at IS NULL;
CREATE INDEX redrive_jobs_caught ON redrive_jobs (id) WHERE caught_at IS NOT NULL;

-- What waits for a reason of its own, such as a retry, by when it is due. A job that is due at once is not in it.
CREATE INDEX redrive_jobs_held ON redrive_jobs (hold, scheduled_at, id) WHERE hold IS NOT NULL;

-- The catch job of a dead one: at most one that is still unfinished.
CREATE UNIQUE INDEX redrive_jobs_catching ON redrive_jobs (parent_id)
WHERE parent_id IS NOT NULL AND state IN ('ready', 'running', 'waiting');

-- The catch jobs of a dead one, ended or not: nothing is pruned before its children.
CREATE INDEX redrive_jobs_children ON redrive_jobs (parent_id) WHERE parent_id IS NOT NULL;

-- Who holds a key. A unique key is held until its job starts or ends; an idempotency key until its job is pruned.
CREATE TABLE redrive_keys (
    kind TEXT NOT NULL CHECK (kind = 'unique' OR kind = 'idempotency'),
    scope TEXT NOT NULL,                  -- of a unique key: its task; idempotency keys have one scope, ''
    key TEXT NOT NULL,
    -- deferred, because a job is inserted only after it has its keys
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

-- One line per closed execution, never changed. The present execution is the job row itself.
CREATE TABLE redrive_attempts (
    job_id INTEGER NOT NULL REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    lease_id INTEGER NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    worker_id INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (
        outcome = 'succeeded' OR outcome = 'failed' OR outcome = 'snoozed' OR outcome = 'cancelled' OR outcome = 'lost'
        OR outcome = 'released'
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
    -- a failure says why
    CHECK ((outcome <> 'failed' AND outcome <> 'lost') OR (reason IS NOT NULL AND rule IS NOT NULL))
) STRICT, WITHOUT ROWID;

INSERT INTO redrive_sequences (name, value) VALUES ('job', 0), ('lease', 0), ('worker', 0);

INSERT INTO redrive_meta (key, value) VALUES ('uid', lower(hex(randomblob(8))));

-- What a handler last said of itself.
CREATE TABLE redrive_progress (
    job_id INTEGER PRIMARY KEY REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    lease_id INTEGER NOT NULL,
    details TEXT NOT NULL,                -- JSON
    at INTEGER NOT NULL
) STRICT;

-- What links the attempts of a job to where it was enqueued, in the traces of whoever watches; most jobs have none.
CREATE TABLE redrive_traces (
    job_id INTEGER PRIMARY KEY REFERENCES redrive_jobs (id) ON DELETE CASCADE,
    trace TEXT NOT NULL
) STRICT;

-- What recurs, as the code last declared it: crons and refreshes.
CREATE TABLE redrive_schedules (
    name TEXT PRIMARY KEY CHECK (name <> ''),
    kind TEXT NOT NULL CHECK (kind = 'cron' OR kind = 'refresh'),
    document TEXT NOT NULL,               -- JSON: when it is due, and the jobs that it makes
    timing TEXT NOT NULL,                 -- digest of when it is due
    declared_at INTEGER NOT NULL,
    paused_at INTEGER,
    resumed_at INTEGER,                   -- what was planned for the time of the last pause is left out
    next_at INTEGER,                      -- of a cron: the next occurrence; nobody has looked at it yet
    job_id INTEGER,                       -- of a cron: the job that was made last
    queued_at INTEGER,                    -- of a cron: the occurrence that waits for the end of that job
    CHECK (kind = 'cron' OR (next_at IS NULL AND job_id IS NULL AND queued_at IS NULL))
) STRICT, WITHOUT ROWID;

-- What became of the occurrences of crons: a row each, so that whatever happens each is fired once.
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

-- The things that are kept fresh, and where each of them stands (seed 004).
CREATE TABLE redrive_refreshes (
    schedule TEXT NOT NULL,
    key TEXT NOT NULL CHECK (key <> ''),
    payload BLOB NOT NULL,
    own TEXT,                             -- a policy of its own, as JSON; NULL: that of the schedule
    timing TEXT NOT NULL,                 -- digest of the policy by which its times were reckoned
    tracked_at INTEGER NOT NULL,
    refresh_at INTEGER,
    deadline_at INTEGER,
    planned_at INTEGER,
    started_at INTEGER,
    due_at INTEGER,
    failing_since INTEGER,
    sweep_at INTEGER,                     -- when time alone makes a difference
    attempt_no INTEGER NOT NULL CHECK (attempt_no >= 0),
    attempts_since_success INTEGER NOT NULL CHECK (attempts_since_success >= 0),
    job_id INTEGER,                       -- the job of the running attempt, whose number is the attempt's token
    disabled_until_update INTEGER NOT NULL CHECK (disabled_until_update IN (0, 1)),
    disabled_reason TEXT,
    completed INTEGER NOT NULL CHECK (completed IN (0, 1)),
    paused INTEGER NOT NULL CHECK (paused IN (0, 1)),
    PRIMARY KEY (schedule, key),
    -- an attempt runs if and only if it has a deadline
    CHECK ((job_id IS NULL) = (deadline_at IS NULL)),
    CHECK (job_id IS NULL OR sweep_at IS NOT NULL),
    -- who gave up says why, and does nothing until the next update
    CHECK (disabled_until_update = (disabled_reason IS NOT NULL)),
    CHECK (NOT disabled_until_update OR (refresh_at IS NULL AND job_id IS NULL AND sweep_at IS NULL))
) STRICT;

-- What a look for due ones walks: those that wait, and nothing else.
CREATE INDEX redrive_refreshes_due ON redrive_refreshes (schedule, refresh_at)
WHERE refresh_at IS NOT NULL AND job_id IS NULL AND NOT paused;

CREATE INDEX redrive_refreshes_sweep ON redrive_refreshes (sweep_at) WHERE sweep_at IS NOT NULL;

-- Those without a policy of their own, for the day on which the code has another one.
CREATE INDEX redrive_refreshes_timing ON redrive_refreshes (schedule, timing) WHERE own IS NULL;

-- Those that people ask for: what has failed last time, and what was given up. One that succeeds is never among them.
CREATE INDEX redrive_refreshes_trouble ON redrive_refreshes (schedule, key)
WHERE disabled_until_update OR attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL);

-- Every change that a person made.
CREATE TABLE redrive_audit (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    details TEXT NOT NULL                 -- JSON
) STRICT;
