-- Return the settings of these queues, or of all, with the number and the first of the starts within the span of the rate.
-- Called by status, circumstances, examine and waiting.
SELECT
    name, paused_at, concurrency, per_partition, rate_count, rate_for, ordered, aging_for, turn, changed_at,
    (
        SELECT count(*) FROM redrive_starts AS started
        WHERE started.queue = queue.name AND started.started_at > :now::timestamptz - queue.rate_for
    ) AS begun,
    (
        SELECT min(started_at) FROM redrive_starts AS started
        WHERE started.queue = queue.name AND started.started_at > :now::timestamptz - queue.rate_for
    ) AS first_at
FROM redrive_queues AS queue
WHERE :names::text[] IS NULL OR queue.name = ANY (:names::text[])
