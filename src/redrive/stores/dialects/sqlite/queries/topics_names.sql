-- Return the names of the topics that have events or subscriptions.
-- Called by topics; a loose scan with as many probes as there are topics.
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
