-- Write the state of items that differ only in their jobs, which are consecutive in this order.
-- Called by every move.
UPDATE redrive_refreshes SET
    timing = :timing,
    refresh_at = :refresh_at,
    deadline_at = :deadline_at,
    planned_at = :planned_at,
    started_at = :started_at,
    due_at = :due_at,
    failing_since = :failing_since,
    succeeded_at = :succeeded_at,
    sweep_at = :sweep_at,
    attempt_no = :attempt_no,
    attempts_since_success = :attempts_since_success,
    disabled_until_update = :disabled_until_update,
    disabled_reason = :disabled_reason,
    completed = :completed,
    paused = :paused,
    -- Finding each one in the list would scan the list from its beginning for every item.
    job_id = (:job_ids ->> 0) + found.key
FROM json_each((
    -- The join reads the keys first and then the items, not the other way round.
    SELECT json_group_array(thing.rowid)
    FROM json_each(:keys) AS given
    CROSS JOIN redrive_refreshes AS thing
    WHERE thing.schedule = :schedule AND thing.key = given.value
)) AS found
WHERE redrive_refreshes.rowid = found.value
