-- Return instances that have been in a state since an instant, the longest there first.
-- Called by waiting.
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
FROM redrive_instances
WHERE machine = :machine AND state = :state AND entered_at <= :until AND status <> 'completed'
ORDER BY entered_at
LIMIT :count
