-- Write that the transitions of events have begun.
-- Called by take_turns and retry.
UPDATE redrive_moves SET
    status = 'running',
    from_state = :from_state,
    to_state = :to_state,
    failed_to = :failed_to,
    finished_at = NULL,
    payload = NULL
WHERE id = :id
