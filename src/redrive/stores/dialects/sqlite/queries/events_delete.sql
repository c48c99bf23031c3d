-- Delete the events of a topic up to an id that no cursor still needs, at most so many; all of them if it is forced.
-- Called by prune.
DELETE FROM redrive_events
WHERE id IN (
    SELECT event.id FROM redrive_events AS event
    WHERE event.topic = :topic AND event.id <= :last_id
        AND (:force OR event.id <= coalesce(
            (SELECT min(CAST(seen AS INTEGER)) FROM redrive_shards WHERE topic = :topic), event.id
        ))
    ORDER BY event.id
    LIMIT :count
)
RETURNING id
