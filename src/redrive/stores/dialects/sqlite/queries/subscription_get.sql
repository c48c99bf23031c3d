-- Return subscriptions by topic and name; NULL stands for any.
-- Called by declare, the feeder, and the commands of operators.
SELECT topic, name, ordering, dead, types, shards, declared_at, paused_at, behind, reshard FROM redrive_subscriptions
WHERE (:topic IS NULL OR topic = :topic) AND (:name IS NULL OR name = :name)
ORDER BY topic, name
