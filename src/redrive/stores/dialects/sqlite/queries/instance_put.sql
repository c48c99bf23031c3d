-- Write the state of instances.
-- Called by every move.
UPDATE redrive_instances SET
    state = :state,
    to_state = :to_state,
    status = :status,
    job_id = :job_id,
    event = :event,
    moves = :moves,
    entered_at = :entered_at,
    timeout_at = :timeout_at,
    timeout_event = :timeout_event,
    timeout_payload = :timeout_payload,
    data = :data,
    error = :error,
    version = :version,
    waiting = :waiting
WHERE machine = :machine AND key = :key
