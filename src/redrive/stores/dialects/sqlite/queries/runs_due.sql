-- Make parked, paused or held runs due now.
-- Called by cancel, resume and supply.
UPDATE redrive_jobs SET hold = CASE WHEN hold = 'paused' THEN 'parked' ELSE hold END, scheduled_at = :now
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'ready' AND hold IN ('parked', 'paused', 'held')
RETURNING id
