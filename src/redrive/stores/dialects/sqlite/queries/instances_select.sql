-- Return instances by machine and key, with the filters that are not NULL.
-- Called by select and get.
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
FROM redrive_instances
WHERE machine = :machine
    AND key > :after
    AND (:key IS NULL OR key = :key)
    AND (:state IS NULL OR state = :state)
    AND (:status IS NULL OR status = :status)
ORDER BY key
LIMIT :count
