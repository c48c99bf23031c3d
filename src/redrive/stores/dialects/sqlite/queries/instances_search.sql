-- Return instances by key, with the filters that are not NULL, among a limited number of them.
-- Called by search.
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
FROM (
    SELECT
        machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
        timeout_payload, data, error, version, waiting
    FROM redrive_instances
    WHERE machine = :machine AND key > :after
    ORDER BY key
    LIMIT :budget
) AS near
WHERE (:state IS NULL OR state = :state)
    AND (:status IS NULL OR status = :status)
ORDER BY key
LIMIT :count
