-- Lock instances in the order of their machines and keys, and return those that exist.
-- Called by send, settle and every action of an operator on one instance.
-- many: rows
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
FROM redrive_instances
WHERE machine = :machine AND key = :key
