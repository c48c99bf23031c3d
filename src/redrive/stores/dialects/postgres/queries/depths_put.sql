-- Write the depths of queues in a minute; those that another worker has written stay.
-- Called by note_depths.
INSERT INTO redrive_depths (at, queue, due, later, running, waiting, dead, oldest_for, due_capped)
SELECT * FROM unnest(
    :at::timestamptz[], :queue::text[], :due::bigint[], :later::bigint[], :running::bigint[], :waiting::bigint[],
    :dead::bigint[], :oldest_for::interval[], :due_capped::boolean[]
) AS given (at, queue, due, later, running, waiting, dead, oldest_for, due_capped)
ORDER BY queue
ON CONFLICT (at, queue) DO NOTHING
