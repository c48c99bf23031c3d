-- Delete a subscription and its rows; its jobs stay.
-- Called by forget.
DELETE FROM redrive_subscriptions WHERE topic = :topic AND name = :name
