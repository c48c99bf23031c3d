-- Return the next events of a window that is small, by id; those that the subscription does not take without payload.
-- Called by turn. One row more than the limit of a small window shows that it is a large one.
SELECT
    id, key, type, version, at,
    CASE WHEN
        (:types::text[] IS NULL OR type = ANY (:types))
            AND (:shards::integer = 1 OR coalesce(slot, id) % :shards = :shard::integer)
    THEN payload END AS payload
FROM (
    -- The index on transaction ids finds the events of the window. The range begins behind the snapshot of the cursor;
    -- the few transactions that were open then are looked up one by one, so that a long one does not make every look
    -- read all events since its start. Adding zero to the id keeps the planner from walking the primary key.
    (
        SELECT id, key, slot, type, version, at, payload FROM redrive_events
        WHERE topic = :topic::text AND id + 0 > :after::bigint
            AND xid >= pg_snapshot_xmax(:seen::text::pg_snapshot) AND xid < pg_snapshot_xmax(:until::text::pg_snapshot)
            AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
        LIMIT :count::bigint
    )
    UNION ALL
    (
        SELECT id, key, slot, type, version, at, payload FROM redrive_events
        WHERE topic = :topic AND id + 0 > :after
            AND xid = ANY (ARRAY(SELECT pg_snapshot_xip(:seen::text::pg_snapshot)))
            AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
        LIMIT :count
    )
) AS found
ORDER BY id
LIMIT :count
