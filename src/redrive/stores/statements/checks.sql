-- The statements of operations/checks.py.

-- name: check_sequences
-- Return the sequences that would hand out a number for the second time.
-- postgres
SELECT newest AS id, name || ' ' || newest || ' is there, but the next one would be ' || (value + 1) AS text,
    'sequences' AS rule
FROM (
    SELECT 'job' AS name, (SELECT max(id) FROM redrive_jobs) AS newest, last_value AS value FROM redrive_job_ids
    UNION ALL
    SELECT 'lease', (SELECT max(lease_id) >> 20 FROM redrive_jobs WHERE state = 'running'), last_value
    FROM redrive_lease_ids
    UNION ALL
    -- Above that are the ids with random bits.
    SELECT 'worker', (SELECT max(id) FROM redrive_workers WHERE id < 4294967296), last_value FROM redrive_worker_ids
) AS used
WHERE newest > value
LIMIT :count::bigint
-- sqlite
SELECT newest AS id, used.name || ' ' || newest || ' is there, but the next one would be ' || (value + 1) AS text,
    'sequences' AS rule
FROM (
    SELECT 'job' AS name, max(id) AS newest FROM redrive_jobs
    UNION ALL
    SELECT 'lease', max(lease_id) >> 20 FROM redrive_jobs WHERE state = 'running'
    UNION ALL
    SELECT 'worker', max(id) FROM redrive_workers WHERE id < 4294967296
) AS used
JOIN redrive_sequences AS sequence ON sequence.name = used.name
WHERE newest > value
LIMIT :count

-- name: check_leases
-- Return the leases that more than one job holds.
-- both
SELECT min(id) AS id, 'lease ' || lease_id || ' is held by ' || count(*) || ' jobs, the first is job ' || min(id) AS text,
    'leases' AS rule
FROM (
    SELECT id, lease_id FROM redrive_jobs WHERE state = 'running'
    UNION ALL
    SELECT id, lease_id FROM redrive_jobs WHERE state = 'waiting'
) AS held
GROUP BY lease_id
HAVING count(*) > 1
LIMIT :count::bigint

-- name: check_holders
-- Return the running jobs with a worker that is not in this database.
-- both
SELECT job.id, 'job ' || job.id || ' runs on worker ' || job.worker_id || ', which is unknown' AS text,
    'holders' AS rule
FROM redrive_jobs AS job
LEFT JOIN redrive_workers AS worker ON worker.id = job.worker_id
WHERE job.state = 'running' AND worker.id IS NULL
LIMIT :count::bigint

-- name: check_limits
-- Return the queues in which more attempts have started than their limits allow, since these were set.
-- An attempt counts if it occupies a slot, and if it runs in the queue without one.
-- both
WITH held AS (
    SELECT id, slot AS queue, partition, claimed_at FROM redrive_jobs WHERE slot IS NOT NULL
    UNION
    SELECT id, queue, partition, claimed_at FROM redrive_jobs WHERE state = 'running'
)
SELECT min(job.id) AS id,
    'queue ' || queue.name || ' runs ' || count(*) || ' jobs at once, but its limit is ' || queue.concurrency AS text,
    'limits' AS rule
FROM redrive_queues AS queue
JOIN held AS job ON job.queue = queue.name AND job.claimed_at > queue.set_at
WHERE queue.concurrency IS NOT NULL
GROUP BY queue.name, queue.concurrency
HAVING count(*) > queue.concurrency
UNION ALL
SELECT min(job.id),
    'queue ' || queue.name || ' runs ' || count(*) || ' jobs of partition ' || job.partition
    || ' at once, but its limit for each is ' || queue.per_partition,
    'limits'
FROM redrive_queues AS queue
JOIN held AS job ON job.queue = queue.name AND job.claimed_at > queue.set_at
WHERE queue.per_partition IS NOT NULL AND job.partition IS NOT NULL
GROUP BY queue.name, queue.per_partition, job.partition
HAVING count(*) > queue.per_partition
LIMIT :count::bigint

-- name: check_refreshes
-- Return the tracked items with an attempt that has ended without an update of the item, or belongs to another item.
-- It reads the items that run or fail, and no others.
-- both
SELECT thing.job_id AS id, thing.schedule || '/' || thing.key || ' waits for job ' || thing.job_id || ', which '
    || CASE
        WHEN job.id IS NULL THEN 'is not there'
        WHEN job.origin = 'refresh:' || thing.schedule || '/' || thing.key THEN 'is ' || job.state
        ELSE 'is for ' || coalesce(job.origin, 'nothing')
    END AS text,
    'refreshes' AS rule
FROM redrive_refreshes AS thing
LEFT JOIN redrive_jobs AS job ON job.id = thing.job_id
WHERE thing.sweep_at IS NOT NULL
    AND thing.job_id IS NOT NULL
    AND (
        job.id IS NULL
        OR job.state IN ('succeeded', 'dead', 'cancelled')
        OR job.origin IS NULL
        OR job.origin <> 'refresh:' || thing.schedule || '/' || thing.key
    )
LIMIT :count::bigint

-- name: check_crons
-- Return the crons with a last job that was created for something other than the cron.
-- A job that was pruned cannot be checked.
-- both
SELECT job.id, 'cron ' || known.name || ' has made job ' || job.id || ', which is for ' || coalesce(job.origin, 'nothing')
    AS text, 'crons' AS rule
FROM redrive_schedules AS known
JOIN redrive_jobs AS job ON job.id = known.job_id
WHERE job.origin IS NULL OR substr(job.origin, 1, length(known.name) + 6) <> 'cron:' || known.name || '/'
LIMIT :count::bigint

-- name: check_machines
-- Return instances with a transition that has ended without a move, or belongs to another instance.
-- It reads the instances with a transition, and no others.
-- both
SELECT instance.job_id AS id, instance.machine || '/' || instance.key || ' waits for job ' || instance.job_id || ', which '
    || CASE
        WHEN job.id IS NULL THEN 'is not there'
        WHEN job.origin = 'machine:' || instance.machine || '/' || instance.key THEN 'is ' || job.state
        ELSE 'is for ' || coalesce(job.origin, 'nothing')
    END AS text,
    'machines' AS rule
FROM redrive_instances AS instance
LEFT JOIN redrive_jobs AS job ON job.id = instance.job_id
WHERE instance.job_id IS NOT NULL
    AND instance.status <> 'failed'
    AND (
        job.id IS NULL
        OR job.state = 'succeeded'
        OR job.state = 'cancelled'
        OR (job.state = 'dead' AND NOT EXISTS (
            SELECT 1 FROM redrive_jobs AS catching
            WHERE catching.parent_id = job.id
                AND (catching.state = 'ready' OR catching.state = 'running' OR catching.state = 'waiting')
        ))
        OR job.origin IS NULL
        OR job.origin <> 'machine:' || instance.machine || '/' || instance.key
    )
LIMIT :count::bigint

-- fragment: shard_ahead
-- True if a shard has seen transactions that this server has not had, which only a server that was replaced can do.
-- postgres
    pg_snapshot_xmax(shard.seen) > pg_snapshot_xmax(pg_current_snapshot())
-- sqlite
    false

-- name: check_topics
-- Return the shards of subscriptions that have no feeder of their own, a position although no window is open, or one
-- that this server has not reached, so that new events would be skipped.
-- It reads every shard.
-- both
SELECT shard.job_id AS id, 'shard ' || shard.shard || ' of ' || shard.topic || '.' || shard.subscription
    || CASE
        WHEN job.id IS NULL THEN ' has job ' || shard.job_id || ' as its feeder, which is not there'
        WHEN shard.until IS NULL AND shard.at_id <> 0 THEN ' is at event ' || shard.at_id || ' of no window'
        WHEN
-- include shard_ahead
        THEN ' has seen transactions that this server has not had, and skips new events'
        ELSE ' has job ' || shard.job_id || ' as its feeder, which is for ' || coalesce(job.origin, 'nothing')
    END AS text,
    'topics' AS rule
FROM redrive_shards AS shard
LEFT JOIN redrive_jobs AS job ON job.id = shard.job_id
WHERE job.id IS NULL
    OR job.origin IS NULL
    OR job.origin <> 'topic:' || shard.topic || '/' || shard.subscription || '@' || shard.shard
    OR (shard.until IS NULL AND shard.at_id <> 0)
    OR
-- include shard_ahead
LIMIT :count::bigint

-- name: check_settled
-- Return the jobs with a present attempt that has ended already, according to the history.
-- both
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' under lease ' || job.lease_id
    || ', but its history says that this attempt has ' || line.outcome AS text,
    'settled' AS rule
FROM redrive_jobs AS job
JOIN redrive_attempts AS line ON line.job_id = job.id AND line.lease_id = job.lease_id
WHERE job.id > :after_id::bigint AND job.id <= :until::bigint AND job.lease_id IS NOT NULL
LIMIT :count::bigint

-- name: check_failures
-- Return the jobs that count more failures than their history has.
-- both
SELECT id, 'job ' || id || ' counts ' || failures || ' failures, but its history has ' || told_failures AS text,
    'failures' AS rule
FROM (
    SELECT job.id, job.failures, (
            SELECT count(*) FROM redrive_attempts AS line
            WHERE line.job_id = job.id AND line.outcome IN ('failed', 'lost')
        ) AS told_failures
    FROM redrive_jobs AS job
    WHERE job.id > :after_id::bigint AND job.id <= :until::bigint AND job.failures > 0
        -- The history of a catch job keeps its newest attempts only.
        AND (job.parent_id IS NULL OR job.attempt <= :history::integer)
) AS told
WHERE failures > told_failures
LIMIT :count::bigint

-- name: check_numbers
-- Return the jobs with a history that lacks an attempt that was counted: it was not ended under its lease.
-- An attempt that was given back or snoozed is not counted, and leaves its number to the next one.
-- both
SELECT id, 'job ' || id || ' counts ' || ended || ' attempts that have ended, but its history has ' || told_attempts AS text,
    'attempts' AS rule
FROM (
    SELECT job.id, job.attempt - CASE WHEN job.lease_id IS NULL THEN 0 ELSE 1 END AS ended,
        CASE WHEN job.success_lease_id IS NULL THEN 0 ELSE 1 END + (
            SELECT count(DISTINCT line.number) FROM redrive_attempts AS line
            WHERE line.job_id = job.id AND line.outcome NOT IN ('snoozed', 'released')
        ) AS told_attempts
    FROM redrive_jobs AS job
    WHERE job.id > :after_id::bigint AND job.id <= :until::bigint AND job.attempt > 0
        -- The history of a catch job keeps its newest attempts only.
        AND (job.parent_id IS NULL OR job.attempt <= :history::integer)
) AS told
WHERE ended <> told_attempts
LIMIT :count::bigint

-- name: check_overlaps
-- Return the attempts that began more than a minute before an earlier attempt of the same job had ended.
-- The minute allows for clocks that were set back.
-- postgres
SELECT one.job_id AS id, 'lease ' || one.lease_id || ' of job ' || one.job_id || ' began before lease ' || other.lease_id
    || ' had ended: two attempts ran at once, or the clock was set back' AS text,
    'overlaps' AS rule
FROM (
    SELECT job_id, lease_id, started_at FROM redrive_attempts WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
    UNION ALL
    SELECT id, coalesce(lease_id, success_lease_id), claimed_at FROM redrive_jobs
    WHERE id > :after_id::bigint AND id <= :until::bigint AND coalesce(lease_id, success_lease_id) IS NOT NULL
) AS one
JOIN redrive_attempts AS other ON other.job_id = one.job_id AND other.lease_id < one.lease_id
WHERE other.finished_at > one.started_at + interval '1 minute'
LIMIT :count::bigint
-- sqlite
SELECT one.job_id AS id, 'lease ' || one.lease_id || ' of job ' || one.job_id || ' began before lease ' || other.lease_id
    || ' had ended: two attempts ran at once, or the clock was set back' AS text,
    'overlaps' AS rule
FROM (
    SELECT job_id, lease_id, started_at FROM redrive_attempts WHERE job_id > :after_id AND job_id <= :until
    UNION ALL
    SELECT id, coalesce(lease_id, success_lease_id), claimed_at FROM redrive_jobs
    WHERE id > :after_id AND id <= :until AND coalesce(lease_id, success_lease_id) IS NOT NULL
) AS one
JOIN redrive_attempts AS other ON other.job_id = one.job_id AND other.lease_id < one.lease_id
WHERE other.finished_at > one.started_at + 60000000
LIMIT :count

-- name: check_repeats
-- Return the leases that attempts of several jobs of the stride had, and those that were never handed out.
-- The same lease in two jobs that are further apart than a stride is not found.
-- postgres
SELECT min(job_id) AS id, 'lease ' || lease_id || ' was held by ' || count(*) || ' jobs, the first is job ' || min(job_id)
    AS text, 'leases' AS rule
FROM redrive_history
WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
GROUP BY lease_id
HAVING count(*) > 1
UNION ALL
SELECT job_id, 'job ' || job_id || ' had lease ' || lease_id || ', which was not handed out yet', 'leases'
FROM redrive_history
WHERE job_id > :after_id::bigint AND job_id <= :until::bigint AND lease_id >> 20 > (SELECT last_value FROM redrive_lease_ids)
LIMIT :count::bigint
-- sqlite
SELECT min(job_id) AS id, 'lease ' || lease_id || ' was held by ' || count(*) || ' jobs, the first is job ' || min(job_id)
    AS text, 'leases' AS rule
FROM redrive_history
WHERE job_id > :after_id AND job_id <= :until
GROUP BY lease_id
HAVING count(*) > 1
UNION ALL
SELECT job_id, 'job ' || job_id || ' had lease ' || lease_id || ', which was not handed out yet', 'leases'
FROM redrive_history
WHERE job_id > :after_id AND job_id <= :until AND lease_id >> 20 > (SELECT value FROM redrive_sequences WHERE name = 'lease')
LIMIT :count

-- name: check_due
-- Return the jobs that wait for a retry at another time than was decided.
-- both
SELECT id, 'job ' || id || ' is to be retried at another time than its history says' AS text, 'due' AS rule
FROM (
    SELECT job.id, job.scheduled_at, (
            SELECT line.finished_at + line.delay FROM redrive_attempts AS line
            WHERE line.job_id = job.id ORDER BY line.lease_id DESC LIMIT 1
        ) AS decided_at
    FROM redrive_jobs AS job
    WHERE job.id > :after_id::bigint AND job.id <= :until::bigint AND job.state = 'ready' AND job.hold = 'retry'
) AS told
WHERE decided_at <> scheduled_at
LIMIT :count::bigint

-- name: check_catches
-- Return the catch jobs of a parent that is not dead, or was caught by another job.
-- both
SELECT child.id, 'job ' || child.id || ' is ' || child.state || ', but job ' || parent.id || ', which it catches, is '
    || parent.state || CASE WHEN parent.caught_at IS NULL THEN ' and was not caught' ELSE ' and was caught by another' END
    AS text, 'catches' AS rule
FROM redrive_jobs AS child
JOIN redrive_jobs AS parent ON parent.id = child.parent_id
WHERE child.id > :after_id::bigint
    AND child.id <= :until::bigint
    AND child.parent_id IS NOT NULL
    AND (
        (child.state IN ('ready', 'running', 'waiting') AND (parent.state <> 'dead' OR parent.caught_at IS NOT NULL))
        OR (child.state = 'succeeded' AND (parent.caught_at IS NULL OR parent.caught_at <> child.finished_at))
    )
LIMIT :count::bigint

-- name: check_keys_missing
-- Return the jobs that should hold their unique key and do not.
-- both
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' and does not hold its key ' || job.key AS text,
    'keys' AS rule
FROM redrive_jobs AS job
WHERE job.id > :after_id::bigint
    AND job.id <= :until::bigint
    AND job.key IS NOT NULL
    AND (job.state = 'ready' OR (job.key_until = 'end' AND job.state IN ('running', 'waiting')))
    AND NOT EXISTS (
        SELECT FROM redrive_keys AS held
        WHERE held.kind = 'unique' AND held.scope = job.task AND held.key = job.key AND held.job_id = job.id
    )
LIMIT :count::bigint

-- name: check_keys_stray
-- Return the unique keys that jobs hold and should not, and the keys of jobs that do not exist.
-- both
SELECT held.job_id AS id, 'the ' || held.kind || ' key ' || held.key || ' is held by job ' || held.job_id || ', which '
    || CASE WHEN job.id IS NULL THEN 'is not there' ELSE 'is ' || job.state END AS text, 'keys' AS rule
FROM redrive_keys AS held
LEFT JOIN redrive_jobs AS job ON job.id = held.job_id
WHERE held.job_id > :after_id::bigint
    AND held.job_id <= :until::bigint
    AND (
        job.id IS NULL
        OR (
            held.kind = 'unique'
            AND (
                job.key IS NULL
                OR job.key <> held.key
                OR job.task <> held.scope
                OR job.state IN ('succeeded', 'dead', 'cancelled')
                OR (job.key_until = 'start' AND job.state <> 'ready')
            )
        )
    )
LIMIT :count::bigint

-- name: check_payloads
-- Return the unfinished jobs without arguments; catch jobs use those of their parents.
-- both
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' and has no arguments' AS text, 'payloads' AS rule
FROM redrive_jobs AS job
WHERE job.id > :after_id::bigint
    AND job.id <= :until::bigint
    AND job.parent_id IS NULL
    AND job.state IN ('ready', 'running', 'waiting')
    AND NOT EXISTS (SELECT FROM redrive_payloads AS kept WHERE kept.job_id = job.id)
LIMIT :count::bigint

-- name: check_columns
-- Return the jobs with columns that contradict their state.
-- A trigger of PostgreSQL refuses them at an update, but not at an insert; the CHECKs of the table refuse them on
-- SQLite.
-- both
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' and its columns contradict that' AS text, 'columns' AS rule
FROM redrive_jobs AS job
WHERE job.id > :after_id::bigint
    AND job.id <= :until::bigint
    AND NOT (
        job.state IN ('ready', 'running', 'waiting', 'succeeded', 'dead', 'cancelled')
        AND (job.lease_id IS NOT NULL) = (job.state IN ('running', 'waiting'))
        AND (job.lease_id IS NULL) = (job.worker_id IS NULL)
        AND (job.success_lease_id IS NOT NULL) = (job.state = 'succeeded')
        AND (job.success_lease_id IS NULL) = (job.success_worker_id IS NULL)
        AND (job.claimed_at IS NOT NULL OR job.state IN ('ready', 'dead', 'cancelled'))
        AND (job.finished_at IS NOT NULL) = (job.state IN ('succeeded', 'dead', 'cancelled'))
        AND (job.slot IS NULL OR job.state = 'running')
        AND (
            job.hold IS NULL OR job.state = 'ready'
            OR (job.hold = 'bad_policy' AND job.state IN ('running', 'waiting'))
        )
        AND (job.state = 'dead' OR (job.caught_at IS NULL AND job.skipped_at IS NULL))
        AND (job.key IS NULL) = (job.key_until IS NULL)
        AND (job.started_at IS NULL OR job.expires_at IS NULL OR job.started_at < job.expires_at)
    )
LIMIT :count::bigint

-- name: check_results
-- Return the results of jobs that have not succeeded.
-- both
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ' and has a result' AS text, 'results' AS rule
FROM redrive_results AS kept
JOIN redrive_jobs AS job ON job.id = kept.job_id
WHERE kept.job_id > :after_id::bigint AND kept.job_id <= :until::bigint AND job.state <> 'succeeded'
LIMIT :count::bigint

-- name: check_orphans
-- Return the rows that belong to jobs that do not exist.
-- both
SELECT job_id AS id, 'there is ' || what || ' of job ' || job_id || ', which is not there' AS text, 'orphans' AS rule
FROM (
    SELECT 'a payload' AS what, job_id FROM redrive_payloads WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
    UNION ALL
    SELECT 'a result', job_id FROM redrive_results WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
    UNION ALL
    SELECT DISTINCT 'a history', job_id FROM redrive_attempts WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
) AS part
WHERE NOT EXISTS (SELECT FROM redrive_jobs AS job WHERE job.id = part.job_id)
LIMIT :count::bigint

-- name: check_superseded
-- Return the unfinished attempts of items that have another attempt or none, except those that an operator retried.
-- postgres
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ', but ' || thing.schedule || '/' || thing.key || ' waits for '
    || coalesce('job ' || thing.job_id, 'none') AS text, 'refreshes' AS rule
FROM redrive_jobs AS job
JOIN redrive_refreshes AS thing
    ON thing.schedule = substr(job.origin, 9, strpos(job.origin, '/') - 9)
    AND thing.key = substr(job.origin, strpos(job.origin, '/') + 1)
WHERE job.id > :after_id::bigint
    AND job.id <= :until::bigint
    AND job.origin LIKE 'refresh:%'
    AND job.state IN ('ready', 'running', 'waiting')
    AND job.redrives = 0
    AND (thing.job_id IS NULL OR thing.job_id <> job.id)
LIMIT :count::bigint
-- sqlite
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ', but ' || thing.schedule || '/' || thing.key || ' waits for '
    || coalesce('job ' || thing.job_id, 'none') AS text, 'refreshes' AS rule
FROM redrive_jobs AS job
JOIN redrive_refreshes AS thing
    ON thing.schedule = substr(job.origin, 9, instr(job.origin, '/') - 9)
    AND thing.key = substr(job.origin, instr(job.origin, '/') + 1)
WHERE job.id > :after_id
    AND job.id <= :until
    AND job.origin LIKE 'refresh:%'
    AND job.state IN ('ready', 'running', 'waiting')
    AND job.redrives = 0
    AND (thing.job_id IS NULL OR thing.job_id <> job.id)
LIMIT :count

-- name: check_moves
-- Return events that wait without an instance that shows it, and those with a transition that is not their
-- instance's.
-- For a range of ids.
-- postgres
SELECT
    move.id,
    CASE
        WHEN move.status = 'queued' AND instance.key IS NOT NULL THEN
            move.machine || '/' || move.key || ' does not show that its event ' || move.id || ' waits'
        WHEN move.status = 'queued' THEN
            move.machine || '/' || move.key || ' was deleted, and its event ' || move.id || ' waits'
        ELSE move.machine || '/' || move.key || ' has left the event ' || move.id || ', whose transition runs'
    END AS text,
    'machines' AS rule
FROM redrive_moves AS move
LEFT JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
WHERE move.id > :after_id::bigint AND move.id <= :until::bigint
    AND (
        (move.status = 'running' AND (instance.job_id IS NULL OR instance.job_id <> move.id))
        OR (move.status = 'queued' AND instance.key IS NULL)
        OR (move.status = 'queued' AND move.noted AND instance.waiting IS NULL)
    )
LIMIT :count::bigint
-- sqlite
SELECT
    move.id,
    CASE
        WHEN move.status = 'queued' AND instance.key IS NOT NULL THEN
            move.machine || '/' || move.key || ' does not show that its event ' || move.id || ' waits'
        WHEN move.status = 'queued' THEN
            move.machine || '/' || move.key || ' was deleted, and its event ' || move.id || ' waits'
        ELSE move.machine || '/' || move.key || ' has left the event ' || move.id || ', whose transition runs'
    END AS text,
    'machines' AS rule
FROM redrive_moves AS move
LEFT JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
WHERE move.id > :after_id AND move.id <= :until
    AND (
        (move.status = 'running' AND (instance.job_id IS NULL OR instance.job_id <> move.id))
        OR (move.status = 'queued' AND instance.key IS NULL)
        OR (move.status = 'queued' AND move.noted = 1 AND instance.waiting IS NULL)
    )
LIMIT :count

-- name: check_runs
-- Return the runs with parts that do not belong together.
-- both
SELECT id, text, 'runs' AS rule
FROM (
    SELECT run.job_id AS id, 'run ' || run.id || ' of ' || run.workflow || ' has job ' || run.job_id
        || ', which is not there or was made for something else' AS text
    FROM redrive_runs AS run
    LEFT JOIN redrive_jobs AS job ON job.id = run.job_id
    WHERE run.job_id > :after_id::bigint AND run.job_id <= :until::bigint
        AND (job.id IS NULL OR coalesce(job.origin, '') <> 'run:' || run.workflow || '/' || run.id)
    UNION ALL
    SELECT job.id, 'job ' || job.id || ' is that of a run, which is not there'
    FROM redrive_jobs AS job
    WHERE job.id > :after_id::bigint AND job.id <= :until::bigint AND (job.origin LIKE 'run:%' OR job.hold IN ('parked', 'paused'))
        AND NOT EXISTS (SELECT FROM redrive_runs AS run WHERE run.job_id = job.id)
    UNION ALL
    SELECT step.run_id, 'step ' || step.path || ' belongs to job ' || step.run_id || ', which is not there'
    FROM redrive_steps AS step
    WHERE step.run_id > :after_id::bigint AND step.run_id <= :until::bigint
        AND NOT EXISTS (SELECT FROM redrive_jobs AS job WHERE job.id = step.run_id)
    UNION ALL
    SELECT step.run_id, 'step ' || step.path || ' of job ' || step.run_id || ' waits for run ' || step.ref
        || ', which is not there'
    FROM redrive_steps AS step
    WHERE step.run_id > :after_id::bigint AND step.run_id <= :until::bigint AND step.kind = 'call'
        AND step.outcome = 'waiting' AND step.error IS NULL
        AND NOT EXISTS (SELECT FROM redrive_runs AS run WHERE run.job_id = step.ref)
    UNION ALL
    SELECT signal.run_id, 'signal ' || signal.id || ' was read by step ' || signal.path || ' of job ' || signal.run_id
        || ', which received another one or is not there'
    FROM redrive_signals AS signal
    WHERE signal.run_id > :after_id::bigint AND signal.run_id <= :until::bigint AND signal.path IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM redrive_steps AS step
            WHERE step.run_id = signal.run_id AND step.path = signal.path AND step.ref = signal.id
        )
) AS found
LIMIT :count::bigint

-- name: check_holes
-- Return the held runs with a recorded step behind a position of the body without one.
-- Only of held runs: a group whose branches have recorded nothing has no row, and a redrive deletes rows that it runs
-- again.
-- postgres
SELECT step.run_id AS id, 'job ' || step.run_id || ' is a held run with step ' || step.path || ', and nothing is recorded of step '
    || (step.path::bigint - 1) || ' before it' AS text,
    'runs' AS rule
FROM redrive_jobs AS job
JOIN redrive_steps AS step ON step.run_id = job.id AND step.path ~ '^[0-9]{1,9}$'
WHERE job.id > :after_id::bigint AND job.id <= :until::bigint AND job.state = 'ready' AND job.hold = 'held'
    AND step.path <> '1'
    AND NOT EXISTS (
        SELECT FROM redrive_steps AS earlier
        WHERE earlier.run_id = step.run_id
            AND split_part(earlier.path, '.', 1) = (CASE WHEN step.path ~ '^[0-9]{1,9}$' THEN step.path::bigint - 1 END)::text
    )
LIMIT :count::bigint
-- sqlite
SELECT step.run_id AS id, 'job ' || step.run_id || ' is a held run with step ' || step.path || ', and nothing is recorded of step '
    || (CAST(step.path AS INTEGER) - 1) || ' before it' AS text,
    'runs' AS rule
FROM redrive_jobs AS job
JOIN redrive_steps AS step ON step.run_id = job.id AND step.path NOT GLOB '*[^0-9]*'
WHERE job.id > :after_id AND job.id <= :until AND job.state = 'ready' AND job.hold = 'held'
    AND step.path <> '1'
    AND NOT EXISTS (
        SELECT 1 FROM redrive_steps AS earlier
        WHERE earlier.run_id = step.run_id
            AND substr(earlier.path || '.', 1, instr(earlier.path || '.', '.') - 1) = CAST(CAST(step.path AS INTEGER) - 1 AS TEXT)
    )
LIMIT :count

-- name: newest
-- Return the largest id of a job, or NULL if there is none.
-- A check stops there.
-- both
SELECT max(id) FROM redrive_jobs
