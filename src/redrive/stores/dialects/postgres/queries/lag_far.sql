-- Return how many events of a large window are not done, up to a limit, and when the oldest was published.
-- Called by lag. It walks the primary key from the position inside the window.
SELECT count(*) AS events, min(at) AS oldest_at, min(id) AS first_id FROM (
    SELECT id, at FROM redrive_events
    WHERE topic = :topic::text AND id > :after::bigint
        AND NOT pg_visible_in_snapshot(xid, :seen::text::pg_snapshot)
        AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
        AND (:types::text[] IS NULL OR type = ANY (:types))
        AND (:shards::integer = 1 OR coalesce(slot, id) % :shards = :shard::integer)
    ORDER BY id
    LIMIT :count::bigint
) AS ahead
