-- Make parked, paused or held runs due now, and those that wait for something else if they are to be cancelled.
-- Called by cancel, resume, supply and wake.
UPDATE redrive_jobs SET hold = CASE WHEN hold = 'paused' THEN 'parked' ELSE hold END, scheduled_at = min(scheduled_at, :now)
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'ready'
    AND (
        hold IN ('parked', 'paused', 'held')
        OR EXISTS (SELECT 1 FROM redrive_runs AS run WHERE run.job_id = redrive_jobs.id AND run.cancel_at IS NOT NULL)
    )
RETURNING id
