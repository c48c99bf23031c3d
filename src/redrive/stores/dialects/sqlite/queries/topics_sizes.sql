-- Return the topics with events or subscriptions: the number of events up to a limit, the first and last, its instant.
-- Called by topics; a loose scan with as many probes as there are topics.
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
