-- Return the names of the topics that have events or subscriptions.
-- Called by topics; a loose scan with as many probes as there are topics.
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
