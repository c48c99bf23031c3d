-- Return the sums of all workers within a span.
-- Called by roll_up.
SELECT at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took
FROM redrive_minutes
WHERE at >= :start AND at < :until
