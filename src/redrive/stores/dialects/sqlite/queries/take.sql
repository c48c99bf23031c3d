-- Take numbers that are never handed out again, and return them in blocks.
-- Called by settle for catch jobs (job), register (worker) and claim (lease; PostgreSQL takes leases in the claim).
UPDATE redrive_sequences SET value = value + :count WHERE name = :name RETURNING value - :count + 1, value
