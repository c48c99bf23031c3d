-- Write the depths of queues in a minute; those that another worker has written stay.
-- Called by note_depths.
INSERT INTO redrive_depths (at, queue, due, later, running, waiting, dead, oldest_for, due_capped)
VALUES (:at, :queue, :due, :later, :running, :waiting, :dead, :oldest_for, :due_capped)
ON CONFLICT (at, queue) DO NOTHING
