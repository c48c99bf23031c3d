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
    WHERE machine = :machine::text AND key > :after::text
    ORDER BY key
    LIMIT :budget::bigint
) AS near
WHERE (:state::text IS NULL OR state = :state::text)
    AND (:status::text IS NULL OR status = :status::text)
ORDER BY key
LIMIT :count::bigint
