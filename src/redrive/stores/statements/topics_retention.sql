-- The statements of operations/topics/retention.py.

-- name: topics_sizes
-- Return the topics with events or subscriptions: the number of events up to a limit, the first and last, its
-- instant.
-- A loose scan with as many probes as there are topics.
-- postgres
WITH RECURSIVE known AS (
    (SELECT topic FROM redrive_events ORDER BY topic LIMIT 1)
    UNION ALL
    SELECT (SELECT topic FROM redrive_events WHERE topic > known.topic ORDER BY topic LIMIT 1)
    FROM known WHERE known.topic IS NOT NULL
), named AS (
    SELECT topic FROM known WHERE topic IS NOT NULL
    UNION
    SELECT topic FROM redrive_subscriptions
)
SELECT
    named.topic,
    (
        SELECT count(*) FROM (
            SELECT FROM redrive_events AS event WHERE event.topic = named.topic ORDER BY event.id LIMIT :count::bigint
        ) AS first
    ) AS events,
    (SELECT event.id FROM redrive_events AS event WHERE event.topic = named.topic ORDER BY event.id LIMIT 1) AS first_id,
    (SELECT event.id FROM redrive_events AS event WHERE event.topic = named.topic ORDER BY event.id DESC LIMIT 1) AS last_id,
    (SELECT event.at FROM redrive_events AS event WHERE event.topic = named.topic ORDER BY event.id LIMIT 1) AS first_at
FROM named
ORDER BY named.topic
-- sqlite
WITH RECURSIVE known (topic) AS (
    SELECT min(topic) FROM redrive_events
    UNION ALL
    SELECT (SELECT min(topic) FROM redrive_events WHERE topic > known.topic)
    FROM known WHERE known.topic IS NOT NULL
), named AS (
    SELECT topic FROM known WHERE topic IS NOT NULL
    UNION
    SELECT topic FROM redrive_subscriptions
)
SELECT
    named.topic,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_events AS event WHERE event.topic = named.topic LIMIT :count
        ) AS first
    ) AS events,
    (SELECT event.id FROM redrive_events AS event WHERE event.topic = named.topic ORDER BY event.id LIMIT 1) AS first_id,
    (SELECT event.id FROM redrive_events AS event WHERE event.topic = named.topic ORDER BY event.id DESC LIMIT 1) AS last_id,
    (SELECT event.at FROM redrive_events AS event WHERE event.topic = named.topic ORDER BY event.id LIMIT 1) AS first_at
FROM named
ORDER BY named.topic

-- name: events_old
-- Return the highest id of the first events of a topic that are older than an instant, or not above an id.
-- For one batch; it reads no event beyond the batch.
-- both
SELECT max(id) AS last_id FROM (
    SELECT id, at FROM redrive_events WHERE topic = :topic::text ORDER BY id LIMIT :count::bigint
) AS first
WHERE at < :before::timestamptz OR id <= :last_id::bigint

-- name: events_delete
-- Delete the events of a topic up to an id that no cursor still needs; all of them if it is forced.
-- postgres
DELETE FROM redrive_events
WHERE topic = :topic::text AND id <= :last_id::bigint
    -- Every event below the oldest transaction that a cursor does not see has been delivered to all subscriptions.
    AND (:force::boolean OR xid < ALL (SELECT pg_snapshot_xmin(seen) FROM redrive_shards WHERE topic = :topic))
RETURNING id
-- sqlite
DELETE FROM redrive_events
WHERE topic = :topic AND id <= :last_id
    AND (:force OR id <= coalesce((SELECT min(CAST(seen AS INTEGER)) FROM redrive_shards WHERE topic = :topic), id))
RETURNING id

-- name: event_pages_drop
-- Delete the sizes of the pages of a topic with events that are deleted, up to an id.
-- both
DELETE FROM redrive_event_pages WHERE topic = :topic::text AND last_id <= :last_id::bigint

-- name: event_pages_add
-- Insert the size of the next page of events of a topic, and return its last id; nothing while the page is not full.
-- An event that commits with a lower id later is not counted, so that a size is slightly too small.
-- postgres
INSERT INTO redrive_event_pages (topic, last_id, bytes)
SELECT :topic::text, max(id), sum(octet_length(payload)) FROM (
    SELECT id, payload FROM redrive_events
    WHERE topic = :topic
        AND id > coalesce((SELECT max(last_id) FROM redrive_event_pages WHERE topic = :topic), 0)
    ORDER BY id LIMIT :count::bigint
) AS next
HAVING count(*) = :count
ON CONFLICT DO NOTHING
RETURNING last_id
-- sqlite
INSERT INTO redrive_event_pages (topic, last_id, bytes)
SELECT :topic, last_id, bytes FROM (
    SELECT max(id) AS last_id, sum(length(payload)) AS bytes, count(*) AS events FROM (
        SELECT id, payload FROM redrive_events
        WHERE topic = :topic
            AND id > coalesce((SELECT max(last_id) FROM redrive_event_pages WHERE topic = :topic), 0)
        ORDER BY id LIMIT :count
    ) AS next
) AS page
WHERE events = :count
RETURNING last_id

-- name: event_pages_large
-- Return the newest page of events at which a topic exceeds a number of bytes, with the page before and the newer
-- bytes.
-- It reads one row for each page.
-- both
SELECT
    last_id,
    coalesce((SELECT max(last_id) FROM redrive_event_pages WHERE topic = :topic::text AND last_id < page.last_id), 0) AS after_id,
    (total - bytes)::bigint AS newer
FROM (
    SELECT last_id, bytes, sum(bytes) OVER (ORDER BY last_id DESC) AS total FROM redrive_event_pages
    WHERE topic = :topic
) AS page
WHERE total > :bytes::bigint
ORDER BY last_id DESC
LIMIT 1

-- name: events_large
-- Return the highest id of the events of a range that exceed a number of bytes, and the bytes of all; the newest
-- count first.
-- For one page of events or for those beyond the last page.
-- postgres
SELECT max(CASE WHEN total > :bytes::bigint THEN id END) AS last_id, coalesce(max(total), 0)::bigint AS bytes FROM (
    SELECT id, sum(octet_length(payload)) OVER (ORDER BY id DESC) AS total FROM redrive_events
    WHERE topic = :topic::text AND id > :after::bigint AND id <= :until::bigint
) AS summed
-- sqlite
SELECT max(CASE WHEN total > :bytes THEN id END) AS last_id, coalesce(max(total), 0) AS bytes FROM (
    SELECT id, sum(length(payload)) OVER (ORDER BY id DESC) AS total FROM redrive_events
    WHERE topic = :topic AND id > :after AND id <= :until
) AS summed

-- name: events_unread
-- Return how many of the events of a topic up to an id a shard has not finished.
-- Before they are deleted by force. It walks the primary key from the first event.
-- postgres
SELECT count(*) AS events FROM redrive_events
WHERE topic = :topic::text AND id <= :last_id::bigint
    AND NOT pg_visible_in_snapshot(xid, :seen::text::pg_snapshot)
    AND (
        NOT pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
        OR (id > :at_id::bigint AND (id > :done_id::bigint OR id = ANY (:unfinished::bigint[])))
    )
    AND (:types::text[] IS NULL OR type = ANY (:types))
    AND (:shards::integer = 1 OR coalesce(slot, id) % :shards = :shard::integer)
-- sqlite
SELECT count(*) AS events FROM redrive_events
WHERE topic = :topic AND id <= :last_id AND id > CAST(:seen AS INTEGER)
    AND (
        id > CAST(:until AS INTEGER)
        OR (id > :at_id AND (id > :done_id OR id IN (SELECT value FROM json_each(:unfinished))))
    )
    AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    AND (:shards = 1 OR coalesce(slot, id) % :shards = :shard)
