    -- The fields of an event of an instance, of redrive_moves.
    id, machine, key, source, status, from_state, to_state, event, event_key, digest, payload, sent_at, finished_at,
    attempts, error, failed_to, actor
