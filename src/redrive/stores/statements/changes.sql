-- The statements of operations/changes.py.

-- name: latest
-- Return the largest ids of the rows that show a change to open pages, and the number of workers that have not left.
-- postgres
WITH RECURSIVE topics AS (
    (SELECT topic FROM redrive_events ORDER BY topic LIMIT 1)
    UNION ALL
    SELECT (SELECT events.topic FROM redrive_events AS events WHERE events.topic > topics.topic ORDER BY events.topic LIMIT 1)
    FROM topics WHERE topics.topic IS NOT NULL
)

SELECT
    coalesce((SELECT max(id) FROM redrive_audit), 0) AS audit,
    coalesce((SELECT max(id) FROM redrive_signals), 0) AS signals,
    coalesce((SELECT max(id) FROM redrive_moves), 0) AS moves,
    coalesce((
        -- The index of ids begins with the topic.
        SELECT max((SELECT max(events.id) FROM redrive_events AS events WHERE events.topic = topics.topic))
        FROM topics
    ), 0) AS events,
    coalesce((SELECT max(id) FROM redrive_workers WHERE stopped_at IS NULL), 0) AS worker,
    (SELECT count(*) FROM redrive_workers WHERE stopped_at IS NULL) AS workers
-- sqlite
SELECT
    coalesce((SELECT max(id) FROM redrive_audit), 0) AS audit,
    coalesce((SELECT max(id) FROM redrive_signals), 0) AS signals,
    coalesce((SELECT max(id) FROM redrive_moves), 0) AS moves,
    coalesce((SELECT max(id) FROM redrive_events), 0) AS events,
    coalesce((SELECT max(id) FROM redrive_workers WHERE stopped_at IS NULL), 0) AS worker,
    (SELECT count(*) FROM redrive_workers WHERE stopped_at IS NULL) AS workers
