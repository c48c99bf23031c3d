-- Lock idle instances of a machine with due timeouts that the code has, the earliest first, without locked ones.
-- Called by take_turns.
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
FROM redrive_instances
WHERE machine = :machine AND timeout_at IS NOT NULL AND timeout_at <= :now AND job_id IS NULL
    AND machine || '/' || state IN (SELECT value FROM json_each(:states))
    AND machine || '/' || timeout_event IN (SELECT value FROM json_each(:events))
ORDER BY timeout_at
LIMIT :count
