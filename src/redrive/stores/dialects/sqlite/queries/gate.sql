-- Answers the instant of this transaction, as the clock does, and one of these queues that is ordered, if any is.
-- Called by enqueue, with the queues of the jobs that have no partition.
SELECT coalesce(:now, now) AS now, (
    SELECT min(name) FROM redrive_queues
    WHERE name IN (SELECT value FROM json_each(:queues)) AND ordered
) AS ordered
FROM redrive_clock
