-- Make parked, paused or held runs due now.
-- Called by cancel, resume and supply.
UPDATE redrive_jobs SET hold = CASE WHEN hold = 'paused' THEN 'parked' ELSE hold END, scheduled_at = :now::timestamptz
-- As in settle_succeeded: the planner must not use the index of held jobs.
WHERE id = ANY (:ids::bigint[]) AND state = 'ready' AND coalesce(hold, '') IN ('parked', 'paused', 'held')
RETURNING id
