-- Keep finished steps of a run whatever arguments the code passes to them now.
-- Called by redrive, retry and fork, for steps behind those that are executed anew.
UPDATE redrive_steps SET digest = NULL WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[])
