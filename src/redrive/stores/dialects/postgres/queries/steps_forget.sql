-- Delete the recorded steps of runs.
-- Called by settle for runs that begin again.
DELETE FROM redrive_steps WHERE run_id = ANY (:ids::bigint[])
