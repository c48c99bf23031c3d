-- Lock a subscription and return it.
-- Called by the commands of operators, and by reshard.
SELECT topic, name, ordering, dead, types, shards, declared_at, paused_at, behind, reshard FROM redrive_subscriptions WHERE topic = :topic AND name = :name
