-- Write all settings of one queue except the partition that was served last.
-- Called by every change of a queue, under its lock.
INSERT INTO redrive_queues (
    name, paused_at, concurrency, per_partition, rate_count, rate_for, ordered, aging_for, changed_at, set_at
) VALUES (
    :name, :paused_at, :concurrency, :per_partition, :rate_count, :rate_for, :ordered, :aging_for, :changed_at, :set_at
)
ON CONFLICT (name) DO UPDATE SET
    paused_at = excluded.paused_at,
    concurrency = excluded.concurrency,
    per_partition = excluded.per_partition,
    rate_count = excluded.rate_count,
    rate_for = excluded.rate_for,
    ordered = excluded.ordered,
    aging_for = excluded.aging_for,
    changed_at = excluded.changed_at,
    set_at = excluded.set_at
