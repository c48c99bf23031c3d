-- Delete a subscription and its rows; its jobs stay.
-- Called by forget.
WITH done AS (DELETE FROM redrive_done WHERE topic = :topic::text AND subscription = :name::text),
shards AS (DELETE FROM redrive_shards WHERE topic = :topic AND subscription = :name)
DELETE FROM redrive_subscriptions WHERE topic = :topic AND name = :name
