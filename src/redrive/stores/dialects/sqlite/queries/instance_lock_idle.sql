-- Lock an instance unless a transition of it runs; return it, and whether it is locked.
-- Called by send.
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting, 1 AS locked
FROM redrive_instances
WHERE machine = :machine AND key = :key
