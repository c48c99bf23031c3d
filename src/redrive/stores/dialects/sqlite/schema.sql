-- The schema of redrive on SQLite, for readers. What runs are the migrations; a test proves both equal.
--
-- Instants are whole microseconds since 1970 in UTC and end in _at; spans are microseconds and end in _for or _delay.
-- Tables are told apart by how they change: redrive_jobs is narrow and updated often; payloads, results, policies and
-- attempts are written once. A claim therefore never rewrites a payload.

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
    document TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_workers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    concurrency INTEGER NOT NULL CHECK (concurrency > 0),
    queues TEXT,                          -- a JSON list; NULL: all queues
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    stopped_at INTEGER,
    CHECK (expires_at >= heartbeat_at)    -- a heartbeat never shortens a life
) STRICT;

-- What is checked in every row is written with OR, which stops at the first hit. For IN, SQLite makes a table of the
-- list, anew for each row: that was a third of what a job costs the database.
CREATE TABLE redrive_jobs (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL CHECK (task <> ''),
    queue TEXT NOT NULL CHECK (queue <> ''),
    priority INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (
        state = 'ready' OR state = 'running' OR state = 'succeeded' OR state = 'dead' OR state = 'cancelled'
    ),
    hold TEXT CHECK (
        hold IS NULL OR hold IN ('delay', 'retry', 'snooze', 'release', 'unknown_task', 'lost', 'redrive')
    ),
    policy TEXT NOT NULL REFERENCES redrive_policies (digest),
    parent_id INTEGER REFERENCES redrive_jobs (id),
    enqueued_at INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    started_at INTEGER,
    claimed_at INTEGER,
    finished_at INTEGER,
    caught_at INTEGER,
    timeout_for INTEGER CHECK (timeout_for > 0),
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    crashes INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    snoozes INTEGER NOT NULL DEFAULT 0 CHECK (snoozes >= 0),
    redrives INTEGER NOT NULL DEFAULT 0 CHECK (redrives >= 0),
    by_rule TEXT,                         -- a JSON list: failures matched by each rule of the policy
    last_delay INTEGER,
    lease_id INTEGER,
    worker_id INTEGER,
    reason TEXT,
    error TEXT,
    note TEXT,
    -- a job has a holder if and only if it runs
    CHECK ((state = 'running') = (lease_id IS NOT NULL)),
    CHECK ((lease_id IS NULL) = (worker_id IS NULL)),
    CHECK (state <> 'running' OR claimed_at IS NOT NULL),
    -- it has a finishing time if and only if it is final
    CHECK ((state = 'succeeded' OR state = 'dead' OR state = 'cancelled') = (finished_at IS NOT NULL)),
    -- only what is ready is held back
    CHECK (hold IS NULL OR state = 'ready'),
    -- only the dead are caught
    CHECK (caught_at IS NULL OR state = 'dead')
) STRICT;

-- What a claim walks: ready rows only, so that a million waiting retries or finished jobs cost it nothing. Within a
-- lane (queue and priority) it leads with the order of the claim.
CREATE INDEX redrive_jobs_ready ON redrive_jobs (queue, priority, scheduled_at, id) WHERE state = 'ready';

-- The lanes that have ready rows, by a loose scan: as many index probes as there are lanes, however long each one is.
CREATE VIEW redrive_lanes AS
WITH RECURSIVE lane (id, queue, priority) AS (
    SELECT first.id, first.queue, first.priority
    FROM (
        SELECT id, queue, priority FROM redrive_jobs
        WHERE state = 'ready' ORDER BY queue, priority LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.queue, job.priority
    FROM lane
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND queue = lane.queue AND priority > lane.priority
            ORDER BY priority LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND queue > lane.queue
            ORDER BY queue, priority LIMIT 1
        )
    )
)
SELECT queue, priority FROM lane;

-- What the sweep walks.
CREATE INDEX redrive_jobs_running ON redrive_jobs (worker_id) WHERE state = 'running';

-- What redrive and people walk.
CREATE INDEX redrive_jobs_dead ON redrive_jobs (id) WHERE state = 'dead' AND caught_at IS NULL;

-- The catch job of a dead one: at most one that is still unfinished.
CREATE UNIQUE INDEX redrive_jobs_catching ON redrive_jobs (parent_id)
WHERE parent_id IS NOT NULL AND state IN ('ready', 'running');

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
