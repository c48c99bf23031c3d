-- Return the lowest id of a topic that a cursor of the old server has not seen; NULL if there is none.
-- Called by rebase.
SELECT min(id) FROM redrive_events
WHERE topic = :topic::text AND (
    -- The numbers of the old server still compare among themselves.
    (
        NOT pg_visible_in_snapshot(xid, :seen::text::pg_snapshot)
        AND (
            :until::text IS NULL OR id > :at_id::bigint
            OR NOT pg_visible_in_snapshot(xid, :until::text::pg_snapshot)
        )
    )
    -- An event that was published after the restore has the number of the transaction that wrote its row.
    OR xmin::text::bigint = xid::text::bigint % 4294967296
)
