-- Lock free instances in a state, without those that others have locked.
-- Called by migrate.
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
FROM redrive_instances
WHERE machine = :machine AND state = :state AND job_id IS NULL AND key > :after
ORDER BY key
LIMIT :count
