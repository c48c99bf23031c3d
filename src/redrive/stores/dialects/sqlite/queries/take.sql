-- Takes a block of numbers that are never handed out again and answers its first and its last one.
-- Called by settle for catch jobs (job), claim (lease) and register (worker).
UPDATE redrive_sequences SET value = value + :count WHERE name = :name RETURNING value - :count + 1, value
