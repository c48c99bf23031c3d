-- Return how many of the events of a topic up to an id a shard has not finished.
-- Called by prune before it deletes them by force; it walks the primary key from the first event.
SELECT count(*) AS events FROM redrive_events
WHERE topic = :topic AND id <= :last_id AND id > CAST(:seen AS INTEGER)
    AND (
        id > CAST(:until AS INTEGER)
        OR (id > :at_id AND (id > :done_id OR id IN (SELECT value FROM json_each(:unfinished))))
    )
    AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    AND (:shards = 1 OR coalesce(slot, id) % :shards = :shard)
