-- Return the identity of the database server, its next transaction id, and the highest one of an event.
-- Called by declare and rebase. A database in a file has neither: its cursors are ids and survive a restore.
SELECT
    (SELECT system_identifier::text FROM pg_control_system()) AS identity,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xid,
    (SELECT max(top.xid::text::bigint) FROM (
        WITH RECURSIVE known AS (
            (SELECT topic FROM redrive_events ORDER BY topic LIMIT 1)
            UNION ALL
            SELECT (SELECT topic FROM redrive_events WHERE topic > known.topic ORDER BY topic LIMIT 1)
            FROM known WHERE known.topic IS NOT NULL
        )
        SELECT (SELECT xid FROM redrive_events WHERE topic = known.topic ORDER BY xid DESC LIMIT 1) AS xid
        FROM known WHERE known.topic IS NOT NULL
    ) AS top) AS last_xid
