-- Delete the records of handlers that have stopped.
-- Called by settle.
DELETE FROM redrive_unstopped WHERE lease_id = ANY (:lease_ids::bigint[])
