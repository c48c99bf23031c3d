-- Delete the rows of ended deliveries that their shard has as done.
-- Called by turn.
DELETE FROM redrive_done
WHERE topic = :topic::text AND subscription = :subscription::text AND event_id = ANY (:ids::bigint[])
