-- Insert an operation, unless an equal one runs or the operation is taken back already.
-- Called by start and undo.
INSERT INTO redrive_operations (
    action, wanted, options, digest, undoes, actor, rate, state, bound_id, frozen_at, matched, last_id, next_at
) VALUES (
    :action::text, :wanted::text, :options::text, :digest::text, :undoes::bigint, :actor::text, :rate::text, 'running',
    :bound_id::bigint, :frozen_at::timestamptz, :matched::bigint, :last_id::bigint, :next_at::timestamptz
)
ON CONFLICT DO NOTHING
RETURNING id
