-- Return how many events of a large window are not done, up to a limit, and when the oldest was published.
-- Called by lag. It walks the primary key from the position inside the window.
SELECT count(*) AS events, min(at) AS oldest_at, min(id) AS first_id FROM (
    SELECT id, at FROM redrive_events
    WHERE topic = :topic AND id > :after AND id > CAST(:seen AS INTEGER) AND id <= CAST(:until AS INTEGER)
        AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
        AND (:shards = 1 OR coalesce(slot, id) % :shards = :shard)
    LIMIT :count
) AS ahead
