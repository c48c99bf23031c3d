-- The statements of operations/topics/cluster.py.

-- name: cluster
-- Return the identity of the database server, its next transaction id, the highest one of an event, and the identity that
-- is stored.
-- A database in a file has neither: its cursors are ids and survive a restore.
-- transaction: none
-- postgres
SELECT
    (SELECT system_identifier::text FROM pg_control_system()) AS identity,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xid,
    (SELECT max(top.xid::text::bigint) FROM (
        WITH RECURSIVE known AS (
            (SELECT topic FROM redrive_events ORDER BY topic LIMIT 1)
            UNION ALL
            SELECT (SELECT topic FROM redrive_events WHERE topic > known.topic ORDER BY topic LIMIT 1)
            FROM known WHERE known.topic IS NOT NULL
        )
        SELECT (SELECT xid FROM redrive_events WHERE topic = known.topic ORDER BY xid DESC LIMIT 1) AS xid
        FROM known WHERE known.topic IS NOT NULL
    ) AS top) AS last_xid,
    (SELECT value FROM redrive_meta WHERE key = :key::text) AS known
-- sqlite
SELECT NULL AS identity, 0 AS next_xid, NULL AS last_xid, (SELECT value FROM redrive_meta WHERE key = :key) AS known

-- name: rebase_first
-- Return the lowest id of a topic that a cursor of the old server has not seen; NULL if there is none.
-- postgres
SELECT min(id) FROM redrive_events
WHERE topic = :topic::text AND (
    -- The numbers of the old server still compare among themselves.
    (
        NOT pg_visible_in_snapshot(xid, :seen::text::pg_snapshot)
        AND (
            :until::text IS NULL OR id > :at_id::bigint
            OR NOT pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
        )
    )
    -- An event that was published after the restore has the number of the transaction that wrote its row.
    OR xmin::text::bigint = xid::text::bigint % 4294967296
)
-- sqlite
SELECT min(id) FROM redrive_events
WHERE topic = :topic AND id > CAST(:seen AS INTEGER) AND (:until IS NULL OR id > :at_id)

-- name: topics_names
-- Return the names of the topics that have events or subscriptions.
-- A loose scan with as many probes as there are topics.
-- postgres
WITH RECURSIVE known AS (
    (SELECT topic FROM redrive_events ORDER BY topic LIMIT 1)
    UNION ALL
    SELECT (SELECT topic FROM redrive_events WHERE topic > known.topic ORDER BY topic LIMIT 1)
    FROM known WHERE known.topic IS NOT NULL
)
SELECT topic FROM known WHERE topic IS NOT NULL
UNION
SELECT topic FROM redrive_subscriptions
ORDER BY topic
-- sqlite
WITH RECURSIVE known (topic) AS (
    SELECT min(topic) FROM redrive_events
    UNION ALL
    SELECT (SELECT min(topic) FROM redrive_events WHERE topic > known.topic)
    FROM known WHERE known.topic IS NOT NULL
)
SELECT topic FROM known WHERE topic IS NOT NULL
UNION
SELECT topic FROM redrive_subscriptions
ORDER BY topic

-- name: topic_edge
-- Return the positions of a topic: its end, its beginning, and the first event from an instant or an id on.
-- postgres
SELECT
    pg_current_snapshot()::text AS edge, '1:1:' AS zero,
    (
        SELECT min(id) FROM redrive_events
        WHERE topic = :topic::text AND id >= coalesce(:id::bigint, 0) AND at >= coalesce(:at::timestamptz, '-infinity')
    ) AS first_id
-- sqlite
SELECT
    CAST(coalesce(max(id), 0) AS TEXT) AS edge, '0' AS zero,
    (
        SELECT min(id) FROM redrive_events
        WHERE topic = :topic AND id >= coalesce(:id, 0) AND at >= coalesce(:at, 0)
    ) AS first_id
FROM redrive_events WHERE topic = :topic

-- name: shard_rebase
-- Put the cursor of a shard at a position of this server; what its feeder has read is void.
-- postgres
UPDATE redrive_shards SET
    epoch = epoch + 1, seen = :seen::text::pg_snapshot, until = :until::text::pg_snapshot, final = :final::text::pg_snapshot,
    at_id = :at_id::bigint, done_id = 0, unfinished = '{}', ahead_id = :at_id, stuck_id = NULL, stuck_why = NULL
WHERE topic = :topic::text AND subscription = :subscription::text AND shard = :shard::integer
-- sqlite
UPDATE redrive_shards SET
    epoch = epoch + 1, seen = :seen, until = :until, final = :final, at_id = :at_id, done_id = 0,
    unfinished = '[]', ahead_id = :at_id, stuck_id = NULL, stuck_why = NULL
WHERE topic = :topic AND subscription = :subscription AND shard = :shard

-- name: done_rebase
-- Keep the rows of ended deliveries valid, because each shard gets the next epoch.
-- both
UPDATE redrive_done SET epoch = epoch + 1

-- name: topic_size
-- Return the number of events of a topic up to a limit, its first and last id, and when the first was published.
-- postgres
SELECT
    (
        SELECT count(*) FROM (
            SELECT FROM redrive_events WHERE topic = :topic::text ORDER BY id LIMIT :count::bigint
        ) AS first
    ) AS events,
    (SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id LIMIT 1) AS first_id,
    (SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id DESC LIMIT 1) AS last_id,
    (SELECT at FROM redrive_events WHERE topic = :topic ORDER BY id LIMIT 1) AS first_at
-- sqlite
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM redrive_events WHERE topic = :topic LIMIT :count)) AS events,
    (SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id LIMIT 1) AS first_id,
    (SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id DESC LIMIT 1) AS last_id,
    (SELECT at FROM redrive_events WHERE topic = :topic ORDER BY id LIMIT 1) AS first_at

-- name: rebase_events
-- Give events the lowest transaction id, which every snapshot of this server sees, and return their ids.
-- In batches.
-- postgres
UPDATE redrive_events SET xid = '3'
-- A range, and not a list of ids: a restored table has no statistics, and the planner would look a list up in the index
-- on transaction ids, which it then reads from end to end for each batch.
WHERE topic = :topic::text AND id > :after::bigint AND id <= (
    SELECT max(id) FROM (
        SELECT id FROM redrive_events
        WHERE topic = :topic AND id > :after AND id <= :last_id::bigint
        ORDER BY id LIMIT :count::bigint
    ) AS page
)
RETURNING id
-- sqlite
SELECT id FROM redrive_events WHERE topic = :topic AND id > :after AND id <= :last_id AND false LIMIT :count
