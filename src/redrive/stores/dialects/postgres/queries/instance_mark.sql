-- Write that an event waits for its turn; a failure, the event of which comes first, stays written.
-- Called by take_turns.
UPDATE redrive_instances AS instance SET waiting = given.waiting
FROM unnest(:machine::text[], :key::text[], :waiting::text[]) AS given (machine, key, waiting)
WHERE instance.machine = given.machine AND instance.key = given.key
    AND (instance.waiting IS NULL OR given.waiting = 'failure')
