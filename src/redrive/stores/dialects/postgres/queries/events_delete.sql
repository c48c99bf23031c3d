-- Delete the events of a topic up to an id that no cursor still needs; all of them if it is forced.
-- Called by prune, with the last id of a batch.
DELETE FROM redrive_events
WHERE topic = :topic::text AND id <= :last_id::bigint
    -- Every event below the oldest transaction that a cursor does not see has been delivered to all subscriptions.
    AND (:force::boolean OR xid < ALL (SELECT pg_snapshot_xmin(seen) FROM redrive_shards WHERE topic = :topic))
RETURNING id
