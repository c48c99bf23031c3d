-- Delete the records of handlers that have stopped.
-- Called by settle.
DELETE FROM redrive_unstopped WHERE lease_id IN (SELECT value FROM json_each(:lease_ids))
