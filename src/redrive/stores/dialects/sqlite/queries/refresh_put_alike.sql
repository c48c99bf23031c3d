-- Writes where things stand that stand alike; their jobs, if they have any, are neighbours in this order.
-- Called by every move.
UPDATE redrive_refreshes SET
    timing = :timing,
    refresh_at = :refresh_at,
    deadline_at = :deadline_at,
    planned_at = :planned_at,
    started_at = :started_at,
    due_at = :due_at,
    failing_since = :failing_since,
    sweep_at = :sweep_at,
    attempt_no = :attempt_no,
    attempts_since_success = :attempts_since_success,
    disabled_until_update = :disabled_until_update,
    disabled_reason = :disabled_reason,
    completed = :completed,
    paused = :paused,
    -- (To look each one up in the list would walk it from its beginning, for every thing.)
    job_id = (:job_ids ->> 0) + found.key
FROM json_each((
    -- From the keys to the things, in this order, and not the other way round.
    SELECT json_group_array(thing.rowid)
    FROM json_each(:keys) AS given
    CROSS JOIN redrive_refreshes AS thing
    WHERE thing.schedule = :schedule AND thing.key = given.value
)) AS found
WHERE redrive_refreshes.rowid = found.value
