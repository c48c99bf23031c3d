-- Write the pause, the number of shards and the events behind of a locked subscription.
-- Called by pause, resume, reshard and prune.
UPDATE redrive_subscriptions SET paused_at = :paused_at, shards = :shards, reshard = :reshard, behind = :behind
WHERE topic = :topic AND name = :name
