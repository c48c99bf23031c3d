-- Return how many events are new for a cursor, up to a limit, and when the oldest was published.
-- Called by lag. It uses the index on transaction ids, as the look of a feeder does.
SELECT count(*) AS events, min(at) AS oldest_at, min(id) AS first_id FROM (
    SELECT id, at FROM (
        (
            SELECT id, at, type, slot FROM redrive_events
            WHERE topic = :topic::text AND xid >= pg_snapshot_xmax(:seen::text::pg_snapshot)
        )
        UNION ALL
        (
            SELECT id, at, type, slot FROM redrive_events
            WHERE topic = :topic AND xid = ANY (ARRAY(SELECT pg_snapshot_xip(:seen::text::pg_snapshot)))
        )
    ) AS found
    WHERE (:types::text[] IS NULL OR type = ANY (:types))
        AND (:shards::integer = 1 OR coalesce(slot, id) % :shards = :shard::integer)
    LIMIT :count::bigint
) AS ahead
