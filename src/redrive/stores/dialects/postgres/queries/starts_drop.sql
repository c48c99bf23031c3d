-- Delete the starts of a queue that no rate window reaches any more.
-- Called by claim under the lock of the queue.
DELETE FROM redrive_starts WHERE queue = :queue AND started_at <= :before
