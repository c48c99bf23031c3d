-- Return the positions of a topic: its end, its beginning, and the first event from an instant or an id on.
-- Called by declare, move, preview and reshard.
SELECT
    pg_current_snapshot()::text AS edge, '1:1:' AS zero,
    (
        SELECT min(id) FROM redrive_events
        WHERE topic = :topic::text AND id >= coalesce(:id::bigint, 0) AND at >= coalesce(:at::timestamptz, '-infinity')
    ) AS first_id
