-- Delete the shards of a subscription.
-- Called by reshard, when all have ended.
DELETE FROM redrive_shards WHERE topic = :topic AND subscription = :subscription
