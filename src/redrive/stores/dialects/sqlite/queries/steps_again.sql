-- Delete the recorded steps that ended these runs.
-- Called by redrive and retry, when the jobs of the runs start again.
DELETE FROM redrive_steps
    -- These are the steps that were undone, with their undos; the cancellation; and the failures after which no other step
    -- was recorded.
WHERE run_id IN (SELECT value FROM json_each(:ids))
    AND (
        kind IN ('undo', 'cancel')
        OR EXISTS (
            SELECT 1 FROM redrive_steps AS undo
            WHERE undo.run_id = redrive_steps.run_id AND undo.path = 'u' || redrive_steps.path AND undo.kind = 'undo'
        )
        OR (
            outcome = 'failed'
            AND NOT EXISTS (
                SELECT 1 FROM redrive_steps AS later
                WHERE later.run_id = redrive_steps.run_id AND later.at > redrive_steps.at
                    AND later.kind NOT IN ('undo', 'cancel')
            )
        )
    )
