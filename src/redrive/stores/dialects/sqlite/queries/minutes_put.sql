-- Write the sums of ended attempts: absolute values, so that a repeated write counts nothing twice.
-- Called by write_counters and roll_up.
INSERT INTO redrive_minutes (
    at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took
)
VALUES (
    :at, :worker_id, :queue, :task, :succeeded, :retried, :died, :snoozed, :lost, :cancelled, :took
)
ON CONFLICT (at, worker_id, queue, task) DO UPDATE SET
    succeeded = excluded.succeeded,
    retried = excluded.retried,
    died = excluded.died,
    snoozed = excluded.snoozed,
    lost = excluded.lost,
    cancelled = excluded.cancelled,
    took = excluded.took
