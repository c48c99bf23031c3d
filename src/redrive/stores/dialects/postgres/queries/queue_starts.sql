-- Return how many attempts of one queue have started after an instant, and when the first of them did.
-- Called by claim under the lock of the queue.
SELECT count(*) AS count, min(started_at) AS first_at
FROM redrive_starts
WHERE queue = :queue AND started_at > :after::timestamptz
