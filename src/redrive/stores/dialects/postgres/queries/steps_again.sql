-- Delete the recorded steps that ended these runs.
-- Called by redrive and retry, when the jobs of the runs start again.
DELETE FROM redrive_steps AS step
    -- These are the steps that were undone, with their undos; the cancellation; and the failures after which no other step
    -- was recorded.
WHERE step.run_id = ANY (:ids::bigint[])
    AND (
        step.kind IN ('undo', 'cancel')
        OR EXISTS (
            SELECT FROM redrive_steps WHERE run_id = step.run_id AND path = 'u' || step.path AND kind = 'undo' OFFSET 0
        )
        OR (
            step.outcome = 'failed'
            AND NOT EXISTS (
                SELECT FROM redrive_steps AS later
                WHERE later.run_id = step.run_id AND later.at > step.at AND later.kind NOT IN ('undo', 'cancel')
                OFFSET 0
            )
        )
    )
