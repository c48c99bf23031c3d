-- The statements of operations/doctor.py.

-- fragment: unreadable
-- The first jobs that no worker can read, by task and reason, as rows of the statement that includes it.
-- both
UNION ALL
SELECT 'unreadable', min(id), task, hold, NULL, count(*), NULL, min(unreadable_at)
FROM (
    SELECT id, task, hold, unreadable_at FROM redrive_jobs
    WHERE hold IN ('bad_payload', 'bad_policy')
    ORDER BY hold, scheduled_at, id
    LIMIT :count
) AS unreadable
GROUP BY task, hold

-- name: vitals
-- Return the instant of this transaction, and facts about the database and what in it may need a person.
-- Each row has its kind; the other columns mean what `redrive.stores.operations.doctor` names them.
-- postgres
SELECT 'clock' AS kind, NULL::bigint AS id, NULL AS name, NULL AS key, NULL AS text, NULL::bigint AS number,
    NULL::bigint AS other, coalesce(:now::timestamptz, now) AS at
FROM redrive_clock
UNION ALL
SELECT 'busy', worker_id, NULL, NULL, NULL, count(*), NULL, NULL
FROM redrive_jobs
WHERE state = 'running'
GROUP BY worker_id
UNION ALL
-- All of them: one that no worker serves may be the last. A claim reads as many.
SELECT 'lane', NULL, queue, task, NULL, NULL, NULL, NULL
FROM (SELECT queue, task FROM redrive_lanes UNION SELECT queue, task FROM redrive_special_lanes) AS lane
UNION ALL
SELECT 'catch', id, task, NULL, NULL, failures, parent_id, NULL
FROM (
    SELECT id, task, failures, parent_id FROM redrive_jobs
    WHERE parent_id IS NOT NULL AND state IN ('ready', 'running', 'waiting') AND failures >= :failures::bigint
    ORDER BY parent_id
    LIMIT :count::bigint
) AS stuck
UNION ALL
SELECT 'machine', NULL, machine, min(key), NULL, count(*), NULL, NULL
FROM redrive_instances
WHERE status = 'failed'
GROUP BY machine
UNION ALL
SELECT 'run', NULL, workflow, id, note, NULL, job_id, unreadable_at
FROM (
    SELECT run.workflow, run.id, job.note, run.job_id, job.unreadable_at
    FROM redrive_jobs AS job
    JOIN redrive_runs AS run ON run.job_id = job.id
    WHERE job.hold = 'held'
    ORDER BY job.unreadable_at, job.id
    LIMIT :count
) AS held
-- include unreadable
UNION ALL
SELECT 'undo', job_id, workflow, id, string_agg(name || ' (' || path || ')', ', ' ORDER BY path), NULL, NULL, NULL
FROM (
    SELECT undo.run_id AS job_id, run.workflow, run.id, step.name, step.path
    FROM redrive_steps AS undo
    JOIN redrive_steps AS step ON step.run_id = undo.run_id AND 'u' || step.path = undo.path
    JOIN redrive_jobs AS job ON job.id = undo.run_id
    JOIN redrive_runs AS run ON run.job_id = undo.run_id
    WHERE undo.kind = 'undo' AND undo.outcome = 'failed' AND job.state IN ('dead', 'cancelled')
    ORDER BY undo.run_id, undo.path
    LIMIT :count
) AS left_undone
GROUP BY job_id, workflow, id
UNION ALL
SELECT 'operation', id, action, rate, last_error, done + kept, matched, NULL
FROM redrive_operations
WHERE state = 'running'
UNION ALL
SELECT 'letters', NULL, topic || '.' || name, dead_topic, NULL, (
    SELECT count(*) FROM redrive_subscriptions AS reader WHERE reader.topic = subscription.dead_topic
), NULL, NULL
FROM redrive_subscriptions AS subscription
WHERE dead_topic IS NOT NULL
UNION ALL
SELECT 'start', job_id, name, NULL, state, NULL, NULL, next_at
FROM (
    SELECT plan.name, plan.job_id, plan.next_at, job.state
    FROM redrive_schedules AS plan
    LEFT JOIN redrive_jobs AS job ON job.id = plan.job_id
    WHERE plan.next_at IS NOT NULL AND plan.paused_at IS NULL
    ORDER BY plan.next_at, plan.name
    LIMIT :starts::bigint
) AS ahead
UNION ALL
SELECT 'server', NULL, 'version', NULL, current_setting('server_version'), NULL, NULL, NULL
UNION ALL
SELECT 'server', NULL, 'version_number', NULL, current_setting('server_version_num'), NULL, NULL, NULL
UNION ALL
SELECT 'server', NULL, 'synchronous_commit', NULL, current_setting('synchronous_commit'), NULL, NULL, NULL
UNION ALL
-- The setting of the transaction does not count: this query runs in one that only reads.
SELECT 'server', NULL, 'read_only', NULL,
    CASE WHEN pg_is_in_recovery() THEN 'on' ELSE current_setting('default_transaction_read_only') END, NULL, NULL, NULL
-- sqlite
SELECT 'clock' AS kind, NULL AS id, NULL AS name, NULL AS key, NULL AS text, NULL AS number, NULL AS other,
    coalesce(:now, now) AS at
FROM redrive_clock
UNION ALL
SELECT 'busy', worker_id, NULL, NULL, NULL, count(*), NULL, NULL
FROM redrive_jobs
WHERE state = 'running'
GROUP BY worker_id
UNION ALL
-- All of them: one that no worker serves may be the last. A claim reads as many.
SELECT 'lane', NULL, queue, task, NULL, NULL, NULL, NULL
FROM (SELECT queue, task FROM redrive_lanes UNION SELECT queue, task FROM redrive_special_lanes) AS lane
UNION ALL
SELECT 'catch', id, task, NULL, NULL, failures, parent_id, NULL
FROM (
    SELECT id, task, failures, parent_id FROM redrive_jobs
    WHERE parent_id IS NOT NULL AND state IN ('ready', 'running', 'waiting') AND failures >= :failures
    ORDER BY parent_id
    LIMIT :count
) AS stuck
UNION ALL
SELECT 'machine', NULL, machine, min(key), NULL, count(*), NULL, NULL
FROM redrive_instances
WHERE status = 'failed'
GROUP BY machine
UNION ALL
SELECT 'run', NULL, workflow, id, note, NULL, job_id, unreadable_at
FROM (
    SELECT run.workflow, run.id, job.note, run.job_id, job.unreadable_at
    FROM redrive_jobs AS job
    JOIN redrive_runs AS run ON run.job_id = job.id
    WHERE job.hold = 'held'
    ORDER BY job.unreadable_at, job.id
    LIMIT :count
) AS held
-- include unreadable
UNION ALL
SELECT 'undo', job_id, workflow, id, group_concat(name || ' (' || path || ')', ', '), NULL, NULL, NULL
FROM (
    SELECT undo.run_id AS job_id, run.workflow, run.id, step.name, step.path
    FROM redrive_steps AS undo
    JOIN redrive_steps AS step ON step.run_id = undo.run_id AND 'u' || step.path = undo.path
    JOIN redrive_jobs AS job ON job.id = undo.run_id
    JOIN redrive_runs AS run ON run.job_id = undo.run_id
    WHERE undo.kind = 'undo' AND undo.outcome = 'failed' AND job.state IN ('dead', 'cancelled')
    ORDER BY undo.run_id, undo.path
    LIMIT :count
) AS left_undone
GROUP BY job_id, workflow, id
UNION ALL
SELECT 'operation', id, action, rate, last_error, done + kept, matched, NULL
FROM redrive_operations
WHERE state = 'running'
UNION ALL
SELECT 'letters', NULL, topic || '.' || name, dead_topic, NULL, (
    SELECT count(*) FROM redrive_subscriptions AS reader WHERE reader.topic = subscription.dead_topic
), NULL, NULL
FROM redrive_subscriptions AS subscription
WHERE dead_topic IS NOT NULL
UNION ALL
SELECT 'start', job_id, name, NULL, state, NULL, NULL, next_at
FROM (
    SELECT plan.name, plan.job_id, plan.next_at, job.state
    FROM redrive_schedules AS plan
    LEFT JOIN redrive_jobs AS job ON job.id = plan.job_id
    WHERE plan.next_at IS NOT NULL AND plan.paused_at IS NULL
    ORDER BY plan.next_at, plan.name
    LIMIT :starts
) AS ahead
UNION ALL
SELECT 'server', NULL, 'version', NULL, sqlite_version(), NULL, NULL, NULL
UNION ALL
SELECT 'server', NULL, 'journal_mode', NULL, (SELECT journal_mode FROM pragma_journal_mode), NULL, NULL, NULL
UNION ALL
SELECT 'server', NULL, 'synchronous', NULL, (
    SELECT CASE synchronous WHEN 0 THEN 'off' WHEN 1 THEN 'normal' WHEN 2 THEN 'full' ELSE 'extra' END
    FROM pragma_synchronous
), NULL, NULL, NULL
