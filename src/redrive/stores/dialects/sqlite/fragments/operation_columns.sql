    -- The fields of an operation, of redrive_operations.
    id, action, wanted, options, undoes, actor, rate, state, bound_id, frozen_at, matched, last_id, done, kept, next_at,
    ended_at, last_error,
    (SELECT newer.id FROM redrive_operations AS newer WHERE newer.undoes = redrive_operations.id) AS undone_by
