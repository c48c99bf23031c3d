-- Write that the transitions of events have begun.
-- Called by take_turns and retry.
UPDATE redrive_moves AS move SET
    status = 'running',
    from_state = given.from_state,
    to_state = given.to_state,
    failed_to = given.failed_to,
    finished_at = NULL,
    payload = NULL
FROM unnest(:id::bigint[], :from_state::text[], :to_state::text[], :failed_to::text[]) AS given (
    id, from_state, to_state, failed_to
)
WHERE move.id = ANY (:id) AND move.id = given.id
