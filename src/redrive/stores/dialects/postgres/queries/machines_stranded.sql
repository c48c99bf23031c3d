-- Count what waits for a state or a class of events that the code does not have: instances, timeouts, waiting events.
-- Called by stranded and examine. It reads every instance of the machines in an index.
SELECT machine, 'state' AS what, state, NULL AS event, count(*) AS number FROM redrive_instances
WHERE machine = ANY (:machines::text[]) AND NOT machine || '/' || state = ANY (:states::text[])
GROUP BY machine, state
UNION ALL
SELECT machine, 'timeout' AS what, state, timeout_event AS event, count(*) AS number FROM redrive_instances
WHERE machine = ANY (:machines::text[]) AND machine || '/' || state = ANY (:states::text[])
    AND NOT machine || '/' || timeout_event = ANY (:events::text[])
GROUP BY machine, state, timeout_event
UNION ALL
SELECT machine, 'event' AS what, NULL AS state, event, count(*) AS number FROM redrive_moves
WHERE machine = ANY (:machines::text[]) AND status = 'queued' AND NOT machine || '/' || event = ANY (:events::text[])
GROUP BY machine, event
ORDER BY machine, what, state, event
