-- Answers what is set for one queue; until the end of the transaction nobody else claims from it or changes it.
-- Called by claim and by every change of a queue. SQLite has one writer at a time, so there is nothing to lock.
SELECT
    name, paused_at, concurrency, per_partition, rate_count, rate_for, ordered, aging_for, turn, changed_at
FROM redrive_queues
WHERE name = :name
