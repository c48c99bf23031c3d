-- Count what waits for a state or a class of events that the code does not have: instances, timeouts, waiting events.
-- Called by stranded and examine. It reads every instance of the machines in an index.
SELECT machine, 'state' AS what, state, NULL AS event, count(*) AS number FROM redrive_instances
WHERE machine IN (SELECT value FROM json_each(:machines))
    AND machine || '/' || state NOT IN (SELECT value FROM json_each(:states))
GROUP BY machine, state
UNION ALL
SELECT machine, 'timeout' AS what, state, timeout_event AS event, count(*) AS number FROM redrive_instances
WHERE machine IN (SELECT value FROM json_each(:machines))
    AND machine || '/' || state IN (SELECT value FROM json_each(:states))
    AND machine || '/' || timeout_event NOT IN (SELECT value FROM json_each(:events))
GROUP BY machine, state, timeout_event
UNION ALL
SELECT machine, 'event' AS what, NULL AS state, event, count(*) AS number FROM redrive_moves
WHERE machine IN (SELECT value FROM json_each(:machines)) AND status = 'queued'
    AND machine || '/' || event NOT IN (SELECT value FROM json_each(:events))
GROUP BY machine, event
ORDER BY machine, what, state, event
