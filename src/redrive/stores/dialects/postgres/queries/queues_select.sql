-- Answers what is set for these queues, or for every queue that is not like the others, by name.
-- Called by the list of queues, and to say why a job is not running.
SELECT
    name, paused_at, concurrency, per_partition, rate_count, rate_for, ordered, aging_for, turn, changed_at
FROM redrive_queues
WHERE :names::text[] IS NULL OR name = ANY (:names)
ORDER BY name
