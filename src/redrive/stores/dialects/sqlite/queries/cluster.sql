-- Return the identity of the database server, its next transaction id, and the highest one of an event.
-- Called by declare and rebase. A database in a file has neither: its cursors are ids and survive a restore.
SELECT NULL AS identity, 0 AS next_xid, NULL AS last_xid
