-- Return the settings of these queues, with the number of attempts within the span of its rate and the start of the first.
-- Called by status and circumstances.
SELECT
    name, paused_at, concurrency, per_partition, rate_count, rate_for, ordered, aging_for, turn, changed_at,
    (
        SELECT count(*) FROM redrive_starts AS started
        WHERE started.queue = queue.name AND started.started_at > :now - queue.rate_for
    ) AS begun,
    (
        SELECT min(started_at) FROM redrive_starts AS started
        WHERE started.queue = queue.name AND started.started_at > :now - queue.rate_for
    ) AS first_at
FROM redrive_queues AS queue
WHERE queue.name IN (SELECT value FROM json_each(:names))
