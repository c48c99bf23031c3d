-- Return the lowest id of the events of a window; NULL if it has none.
-- Called by turn before it walks a large window, by lag and by rebase.
SELECT min(id) FROM (
    SELECT min(id + 0) AS id FROM redrive_events
    WHERE topic = :topic::text AND xid >= pg_snapshot_xmax(:seen::text::pg_snapshot)
        AND xid < pg_snapshot_xmax(:until::text::pg_snapshot) AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
    UNION ALL
    SELECT min(id + 0) FROM redrive_events
    WHERE topic = :topic AND xid = ANY (ARRAY(SELECT pg_snapshot_xip(:seen::text::pg_snapshot)))
        AND pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
) AS found
