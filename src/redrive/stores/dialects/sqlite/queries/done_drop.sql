-- Delete the rows of events that are done and that the cursor has passed.
-- Called by turn.
DELETE FROM redrive_done
WHERE topic = :topic AND subscription = :subscription AND event_id IN (SELECT value FROM json_each(:ids))
