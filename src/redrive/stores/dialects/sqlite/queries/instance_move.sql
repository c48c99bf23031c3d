-- Write that instances have entered the states that their transitions led to.
-- Called by settle, for those without a timeout before and after it, and without other data.
UPDATE redrive_instances SET
    state = to_state,
    to_state = NULL,
    status = :status,
    job_id = NULL,
    event = NULL,
    moves = moves + 1,
    entered_at = :entered_at,
    error = NULL,
    version = :version
WHERE machine = :machine AND key = :key
