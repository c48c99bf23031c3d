-- Insert events of instances, without those with a key that another event has; return the ids.
-- Called by send, settle and take_turns.
-- many: rows
INSERT INTO redrive_moves (
-- include move_columns.sql
)
VALUES (
    :id, :machine, :key, :source, :status, :from_state, :to_state, :event, :event_key, :digest, :payload, :sent_at,
    :finished_at, :attempts, :error, :failed_to, :actor
)
ON CONFLICT (machine, key, event_key) WHERE event_key IS NOT NULL DO NOTHING
RETURNING id
