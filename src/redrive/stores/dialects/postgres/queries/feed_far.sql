-- Return the next events of a window that is large, by id; those that the subscription does not take without payload.
-- Called by turn. It walks the primary key: sorting a large window for each page would read all of it each time.
SELECT
    id, key, type, version, at,
    CASE WHEN
        (:types::text[] IS NULL OR type = ANY (:types))
            AND (:shards::integer = 1 OR coalesce(slot, id) % :shards = :shard::integer)
    THEN payload END AS payload
FROM redrive_events
WHERE topic = :topic::text AND id > :after::bigint
    AND NOT pg_visible_in_snapshot(xid, :seen::text::pg_snapshot) AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
ORDER BY id
LIMIT :count::bigint
