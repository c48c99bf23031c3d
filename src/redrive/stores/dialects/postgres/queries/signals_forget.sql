-- Delete the signals that runs have read.
-- Called by settle for runs that begin again.
DELETE FROM redrive_signals WHERE run_id = ANY (:ids::bigint[]) AND path IS NOT NULL
