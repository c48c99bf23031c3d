-- Return an operation.
-- Called by get, stop and undo, and carry_out for the operation that it takes back.
SELECT
    id, action, wanted, options, undoes, actor, rate, state, bound_id, frozen_at, matched, last_id, done, kept, next_at,
    ended_at, last_error,
    (SELECT newer.id FROM redrive_operations AS newer WHERE newer.undoes = redrive_operations.id) AS undone_by
FROM redrive_operations
WHERE id = :id::bigint
