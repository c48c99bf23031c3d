-- Write which partition of a queue was served last.
-- Called by claim; a queue of jobs with partitions may not have a row yet.
INSERT INTO redrive_queues (name, turn) VALUES (:name, :turn)
ON CONFLICT (name) DO UPDATE SET turn = excluded.turn
