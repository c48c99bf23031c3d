-- Notes that an attempt of a queue with a rate has started.
-- Called by claim under the lock of the queue.
INSERT INTO redrive_starts (queue, lease_id, started_at) VALUES (:queue, :lease_id, :started_at)
