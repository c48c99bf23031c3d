-- Make parked, paused or held runs due now, and those that wait for something else if they are to be cancelled.
-- Called by cancel, resume, supply and wake.
UPDATE redrive_jobs SET hold = CASE WHEN hold = 'paused' THEN 'parked' ELSE hold END, scheduled_at = least(scheduled_at, :now::timestamptz)
-- As in settle_succeeded: the planner must not use the index of held jobs.
WHERE id = ANY (:ids::bigint[]) AND state = 'ready'
    AND (
        coalesce(hold, '') IN ('parked', 'paused', 'held')
        OR EXISTS (
            SELECT FROM redrive_runs AS run WHERE run.job_id = redrive_jobs.id AND run.cancel_at IS NOT NULL OFFSET 0
        )
    )
RETURNING id
