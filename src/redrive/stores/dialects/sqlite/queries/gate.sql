-- Take ids for jobs; return their blocks, the instant, and one of these queues that is ordered, if there is one.
-- Called by enqueue, with the queues of the jobs that have no partition.
UPDATE redrive_sequences SET value = value + :count
WHERE name = 'job'
RETURNING
    coalesce(:now, (SELECT now FROM redrive_clock)) AS now,
    (
        SELECT min(name) FROM redrive_queues
        WHERE name IN (SELECT value FROM json_each(:queues)) AND ordered
    ) AS ordered,
    value - :count + 1 AS first,
    value AS last
