-- Insert an operation, unless an equal one runs or the operation is taken back already.
-- Called by start and undo.
INSERT INTO redrive_operations (
    action, wanted, options, digest, undoes, actor, rate, state, bound_id, frozen_at, matched, last_id, next_at
) VALUES (
    :action, :wanted, :options, :digest, :undoes, :actor, :rate, 'running', :bound_id, :frozen_at, :matched, :last_id, :next_at
)
ON CONFLICT DO NOTHING
RETURNING id
