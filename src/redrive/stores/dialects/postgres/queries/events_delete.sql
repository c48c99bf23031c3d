-- Delete the events of a topic up to an id that no cursor still needs, at most so many; all of them if it is forced.
-- Called by prune.
DELETE FROM redrive_events
WHERE topic = :topic::text AND id = ANY (ARRAY(
    SELECT id FROM redrive_events AS event
    WHERE event.topic = :topic AND event.id <= :last_id::bigint
        -- Every event below the oldest transaction that a cursor does not see has been delivered to all subscriptions.
        AND (:force::boolean OR event.xid < ALL (
            SELECT pg_snapshot_xmin(seen) FROM redrive_shards WHERE topic = :topic
        ))
    ORDER BY event.id
    LIMIT :count::bigint
))
RETURNING id
