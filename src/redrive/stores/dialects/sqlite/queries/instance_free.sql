-- Lock an instance if it is free, in a state that the code has, and no other transaction has locked it.
-- Called by send with busy="queue".
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
FROM redrive_instances
WHERE machine = :machine AND key = :key AND job_id IS NULL
    AND (state IS NULL OR machine || '/' || state IN (SELECT value FROM json_each(:states)))
