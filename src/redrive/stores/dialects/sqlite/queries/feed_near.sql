-- Return the next events of a window that is small, by id; those that the subscription does not take without payload.
-- Called by turn. One row more than the limit of a small window shows that it is a large one.
SELECT
    id, key, type, version, at,
    CASE WHEN
        (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
            AND (:shards = 1 OR coalesce(slot, id) % :shards = :shard)
    THEN payload END AS payload
FROM redrive_events
WHERE topic = :topic AND id > max(:after, CAST(:seen AS INTEGER)) AND id <= CAST(:until AS INTEGER)
ORDER BY id
LIMIT :count
