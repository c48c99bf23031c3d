-- Write a subscription as the code declares it; its pause, its shards and its cursor stay.
-- Called by declare.
INSERT INTO redrive_subscriptions (topic, name, ordering, dead, types, shards, declared_at)
VALUES (:topic, :name, :ordering, :dead, :types, :shards, :now)
ON CONFLICT (topic, name) DO UPDATE SET ordering = excluded.ordering, dead = excluded.dead, types = excluded.types
