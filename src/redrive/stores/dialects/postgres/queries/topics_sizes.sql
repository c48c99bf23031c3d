-- Return the topics with events or subscriptions: the number of events up to a limit, the first and last, its instant.
-- Called by topics; a loose scan with as many probes as there are topics.
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
