-- Write that an event waits for its turn; a failure, the event of which comes first, stays written.
-- Called by take_turns.
UPDATE redrive_instances SET waiting = :waiting
WHERE machine = :machine AND key = :key AND (waiting IS NULL OR :waiting = 'failure')
