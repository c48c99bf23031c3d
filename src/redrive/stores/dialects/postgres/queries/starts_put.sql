-- Insert starts of a queue with a rate.
-- Called by claim under the lock of the queue.
INSERT INTO redrive_starts (queue, lease_id, started_at)
SELECT * FROM unnest(:queue::text[], :lease_id::bigint[], :started_at::timestamptz[])
