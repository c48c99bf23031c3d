-- Delete the rows of ended deliveries of a subscription.
-- Called by move.
DELETE FROM redrive_done WHERE topic = :topic::text AND subscription = :subscription::text
