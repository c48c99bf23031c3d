-- Return the first id of a topic from an instant on, by halves: a topic may have millions of events before it.
-- Called by declare, move and preview; it reads one event of each half.
WITH RECURSIVE half (low, high) AS (
    SELECT
        coalesce((SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id LIMIT 1), 0),
        coalesce((SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id DESC LIMIT 1), 0)
    UNION ALL
    SELECT
        iif(event.at < :at, min(event.id + 1, half.high), half.low),
        iif(event.at < :at, half.high, (half.low + half.high) / 2)
    FROM half
    JOIN redrive_events AS event ON event.topic = :topic AND event.id = (
        SELECT id FROM redrive_events
        WHERE topic = :topic AND id >= (half.low + half.high) / 2
        ORDER BY id LIMIT 1
    )
    WHERE half.low < half.high
)
SELECT max(low) AS id FROM half
