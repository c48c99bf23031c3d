-- Write the pause, the number of shards and the events behind of a locked subscription.
-- Called by pause, resume, reshard and prune.
UPDATE redrive_subscriptions SET
    paused_at = :paused_at::timestamptz, shards = :shards::integer, reshard = :reshard::integer,
    behind = :behind::bigint
WHERE topic = :topic::text AND name = :name::text
