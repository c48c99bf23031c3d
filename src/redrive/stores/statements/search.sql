-- The statements of operations/search.py.

-- fragment: topics
-- The topics that have events, by a loose scan, each with the ids of its oldest and its newest event.
-- both
topics (name) AS (
    SELECT min(topic) FROM redrive_events
    UNION ALL
    SELECT (SELECT min(topic) FROM redrive_events WHERE topic > topics.name) FROM topics WHERE topics.name IS NOT NULL
),
ends (name, first_id, last_id) AS (
    SELECT
        name,
        (SELECT min(id) FROM redrive_events WHERE topic = topics.name),
        (SELECT max(id) FROM redrive_events WHERE topic = topics.name)
    FROM topics
    WHERE name IS NOT NULL
)

-- name: hits
-- Return the runs with an id, and the instances and items with a key, by their primary keys, and of the newest events, a
-- number of ids, those with a key of their own.
-- The workflows and machines are found by a loose scan. CROSS JOIN: SQLite keeps the order of the tables.
-- both
WITH RECURSIVE workflows (name) AS (
    SELECT min(workflow) FROM redrive_runs
    UNION ALL
    SELECT (SELECT min(workflow) FROM redrive_runs WHERE workflow > workflows.name)
    FROM workflows
    WHERE workflows.name IS NOT NULL
),
machines (name) AS (
    SELECT min(machine) FROM redrive_instances
    UNION ALL
    SELECT (SELECT min(machine) FROM redrive_instances WHERE machine > machines.name)
    FROM machines
    WHERE machines.name IS NOT NULL
),
-- include topics
SELECT * FROM (
    SELECT 'run' AS kind, run.workflow AS name, run.id AS part, job.state AS text, run.job_id, job.enqueued_at AS at
    FROM workflows
    CROSS JOIN redrive_runs AS run
    CROSS JOIN redrive_jobs AS job
    WHERE run.workflow = workflows.name AND run.id = :word::text AND job.id = run.job_id
    LIMIT :most::bigint
) AS runs
UNION ALL
SELECT * FROM (
    SELECT 'instance', instance.machine, instance.key, coalesce(instance.state, '(new)') || ', ' || instance.status,
        instance.job_id, instance.entered_at
    FROM machines
    CROSS JOIN redrive_instances AS instance
    WHERE instance.machine = machines.name AND instance.key = :word
    LIMIT :most
) AS instances
UNION ALL
SELECT * FROM (
    SELECT 'item', item.schedule, item.key,
        CASE
            WHEN item.disabled_until_update THEN 'given up'
            WHEN item.completed THEN 'completed'
            WHEN item.failing_since IS NOT NULL THEN 'failing'
            ELSE 'fresh'
        END,
        item.job_id, item.tracked_at
    FROM redrive_schedules AS refresh
    CROSS JOIN redrive_refreshes AS item
    WHERE refresh.kind = 'refresh' AND item.schedule = refresh.name AND item.key = :word
    LIMIT :most
) AS items
UNION ALL
SELECT * FROM (
    SELECT 'event' AS kind, event.topic AS name, CAST(event.id AS text) AS part, event.type AS text,
        CAST(NULL AS bigint) AS job_id, event.at AS at
    FROM ends
    CROSS JOIN redrive_events AS event
    WHERE event.topic = ends.name AND event.id > (SELECT max(last_id) FROM ends) - :budget::bigint
        AND event.id <= ends.last_id AND event.key = :word
    ORDER BY event.id DESC
    LIMIT :most
) AS events
UNION ALL
SELECT * FROM (
    SELECT 'move', machine, key, coalesce(event, source) || ', ' || status, id, sent_at
    FROM redrive_moves
    WHERE event_key = :word AND id > (SELECT max(id) FROM redrive_moves) - :budget
    ORDER BY id DESC
    LIMIT :most
) AS moves

-- name: hits_unread
-- Return whether there are events that `hits` does not read.
-- both
WITH RECURSIVE
-- include topics
SELECT coalesce((SELECT min(first_id) <= max(last_id) - :budget::bigint FROM ends), false)
    OR coalesce((SELECT min(id) FROM redrive_moves) <= (SELECT max(id) FROM redrive_moves) - :budget, false)
