-- Answers the instant of this transaction, as the clock does, and one of these queues that is ordered, if any is.
-- Called by enqueue, with the queues of the jobs that have no partition.
SELECT coalesce(:now::timestamptz, now) AS now, (
    SELECT min(name) FROM redrive_queues
    WHERE name = ANY (:queues::text[]) AND ordered
) AS ordered
FROM redrive_clock
