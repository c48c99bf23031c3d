-- Return the events of a subscription whose deliveries have ended under an epoch, although its shards may not have them as done.
-- Called by attach.
SELECT event_id FROM redrive_done
WHERE topic = :topic AND subscription = :subscription AND epoch = :epoch
