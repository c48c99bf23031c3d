-- Answers what is set for one queue; until the end of the transaction nobody else claims from it or changes it.
-- Called by claim and by every change of a queue. What is counted under the lock is asked for in later statements.
SELECT
    name, paused_at, concurrency, per_partition, rate_count, rate_for, ordered, aging_for, turn, changed_at
FROM redrive_queues
WHERE name = :name
FOR UPDATE
