-- Return events by their ids.
-- Called by settle and by the actions of operators on failed transitions.
SELECT
    id, machine, key, source, status, from_state, to_state, event, event_key, digest, payload, sent_at, finished_at,
    attempts, error, failed_to, actor
FROM redrive_moves
WHERE id IN (SELECT value FROM json_each(:ids))
