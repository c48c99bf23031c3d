-- Return the positions of a topic: its end, its beginning, and the first event from an instant or an id on.
-- Called by declare, move, preview and reshard.
SELECT
    CAST(coalesce(max(id), 0) AS TEXT) AS edge, '0' AS zero,
    (
        SELECT min(id) FROM redrive_events
        WHERE topic = :topic AND id >= coalesce(:id, 0) AND at >= coalesce(:at, 0)
    ) AS first_id
FROM redrive_events WHERE topic = :topic
