    -- The fields of an instance, of redrive_instances.
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
