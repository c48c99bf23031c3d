-- Delete the rows of ended deliveries that their shard has as done.
-- Called by turn.
DELETE FROM redrive_done
WHERE topic = :topic AND subscription = :subscription AND event_id IN (SELECT value FROM json_each(:ids))
