-- Write that an event waits for its turn; a failure, the event of which comes first, stays written.
-- Called by take_turns.
UPDATE redrive_instances AS instance SET waiting = given.waiting
FROM unnest(:machine::text[], :key::text[], :waiting::text[]) AS given (machine, key, waiting)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_instances WHERE machine = given.machine AND key = given.key OFFSET 0
) AS found
WHERE instance.ctid = found.place
    AND (instance.waiting IS NULL OR given.waiting = 'failure')
