-- Lock an instance if it is free and no other transaction has locked it.
-- Called by send with busy="queue".
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version
FROM redrive_instances
WHERE machine = :machine AND key = :key AND job_id IS NULL
