-- Return how many of the events of a topic up to an id a shard has not finished.
-- Called by prune before it deletes them by force; it walks the primary key from the first event.
SELECT count(*) AS events FROM redrive_events
WHERE topic = :topic::text AND id <= :last_id::bigint
    AND NOT pg_visible_in_snapshot(xid, :seen::text::pg_snapshot)
    AND (
        NOT pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
        OR (id > :at_id::bigint AND (id > :done_id::bigint OR id = ANY (:unfinished::bigint[])))
    )
    AND (:types::text[] IS NULL OR type = ANY (:types))
    AND (:shards::integer = 1 OR coalesce(slot, id) % :shards = :shard::integer)
