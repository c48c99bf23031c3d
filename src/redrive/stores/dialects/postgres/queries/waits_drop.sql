-- Delete the waits of these runs for signals and values that are not open; open ones are given as job, colon and path.
-- Called by settle for the runs that it parks, before runs_parked.
DELETE FROM redrive_steps
WHERE run_id = ANY (:ids::bigint[]) AND outcome = 'waiting' AND kind IN ('wait', 'event')
    AND run_id || ':' || path <> ALL (:open::text[])
