-- Return failed instances by machine and key, in one state or in all.
-- Called by search; their index has no others.
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
FROM redrive_instances
WHERE machine = :machine::text
    AND status = 'failed'
    AND key > :after::text
    AND (:state::text IS NULL OR state = :state::text)
ORDER BY key
LIMIT :count::bigint
