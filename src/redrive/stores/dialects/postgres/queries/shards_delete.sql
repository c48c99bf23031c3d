-- Delete the shards of a subscription.
-- Called by reshard, when all have ended.
DELETE FROM redrive_shards WHERE topic = :topic::text AND subscription = :subscription::text
