-- Write the sums of ended attempts: absolute values, so that a repeated write counts nothing twice.
-- Called by write_counters and roll_up.
INSERT INTO redrive_minutes (
    at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took
)
SELECT at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took::integer[]
FROM unnest(
    :at::timestamptz[], :worker_id::bigint[], :queue::text[], :task::text[], :succeeded::bigint[], :retried::bigint[],
    :died::bigint[], :snoozed::bigint[], :lost::bigint[], :cancelled::bigint[], :took::text[]
) AS given (at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took)
ORDER BY at, queue, task
ON CONFLICT (at, worker_id, queue, task) DO UPDATE SET
    succeeded = excluded.succeeded,
    retried = excluded.retried,
    died = excluded.died,
    snoozed = excluded.snoozed,
    lost = excluded.lost,
    cancelled = excluded.cancelled,
    took = excluded.took
