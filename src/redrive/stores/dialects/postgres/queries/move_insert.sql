-- Insert events of instances, without those with a key that another event has; return the ids.
-- Called by send, settle and take_turns.
INSERT INTO redrive_moves (
-- include move_columns.sql
)
SELECT
-- include move_columns.sql
FROM unnest(
    :id::bigint[], :machine::text[], :key::text[], :source::text[], :status::text[], :from_state::text[],
    :to_state::text[], :event::text[], :event_key::text[], :digest::text[], :payload::bytea[], :sent_at::timestamptz[],
    :finished_at::timestamptz[], :attempts::integer[], :error::text[], :failed_to::text[], :actor::text[]
) AS given (
-- include move_columns.sql
)
ON CONFLICT (machine, key, event_key) WHERE event_key IS NOT NULL DO NOTHING
RETURNING id
