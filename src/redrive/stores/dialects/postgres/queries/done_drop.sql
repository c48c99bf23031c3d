-- Delete the rows of events that are done and that the cursor has passed.
-- Called by turn.
DELETE FROM redrive_done
WHERE topic = :topic::text AND subscription = :subscription::text AND event_id = ANY (:ids::bigint[])
