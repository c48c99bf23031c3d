-- Return how many events are new for a cursor, up to a limit, and when the oldest was published.
-- Called by lag. It uses the index on transaction ids, as the look of a feeder does.
SELECT count(*) AS events, min(at) AS oldest_at, min(id) AS first_id FROM (
    SELECT id, at FROM redrive_events
    WHERE topic = :topic AND id > CAST(:seen AS INTEGER)
        AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
        AND (:shards = 1 OR coalesce(slot, id) % :shards = :shard)
    LIMIT :count
) AS ahead
