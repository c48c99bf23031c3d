-- Return the first id of a topic from an instant on, by halves: a topic may have millions of events before it.
-- Called by declare, move and preview; it reads one event of each half.
WITH RECURSIVE half (low, high) AS (
    SELECT
        coalesce((SELECT id FROM redrive_events WHERE topic = :topic::text ORDER BY id LIMIT 1), 0),
        coalesce((SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id DESC LIMIT 1), 0)
    UNION ALL
    SELECT
        CASE WHEN event.at < :at::timestamptz THEN least(event.id + 1, half.high) ELSE half.low END,
        CASE WHEN event.at < :at THEN half.high ELSE (half.low + half.high) / 2 END
    FROM half
    CROSS JOIN LATERAL (
        SELECT id, at FROM redrive_events
        WHERE topic = :topic AND id >= (half.low + half.high) / 2
        ORDER BY id LIMIT 1
    ) AS event
    WHERE half.low < half.high
)
SELECT max(low) AS id FROM half
