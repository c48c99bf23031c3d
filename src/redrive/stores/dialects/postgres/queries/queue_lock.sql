-- Return the settings of one queue, and block other claims and changes until the transaction ends.
-- Called by claim and by every change of a queue. SQLite has one writer at a time and needs no lock.
SELECT
    name, paused_at, concurrency, per_partition, rate_count, rate_for, ordered, aging_for, turn, changed_at
FROM redrive_queues
WHERE name = :name
FOR UPDATE
