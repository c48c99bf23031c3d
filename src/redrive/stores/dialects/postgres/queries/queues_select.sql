-- Return the settings of these queues, or of every queue that has any, by name.
-- Called by queues and settings.
SELECT
    name, paused_at, concurrency, per_partition, rate_count, rate_for, ordered, aging_for, turn, changed_at
FROM redrive_queues
WHERE :names::text[] IS NULL OR name = ANY (:names)
ORDER BY name
