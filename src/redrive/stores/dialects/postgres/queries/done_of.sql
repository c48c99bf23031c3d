-- Return the events of a subscription that are done although earlier ones are not.
-- Called by attach.
SELECT event_id FROM redrive_done WHERE topic = :topic::text AND subscription = :subscription::text
