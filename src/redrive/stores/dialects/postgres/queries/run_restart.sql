-- Begin the next epoch of runs.
-- Called by settle for runs that begin again, with steps_forget.
UPDATE redrive_runs AS run SET epoch = run.epoch + 1, set_values = coalesce(given.set_values, run.set_values)
FROM unnest(:run_id::bigint[], :set_values::bytea[]) AS given (run_id, set_values)
WHERE run.job_id = ANY (:run_id) AND run.job_id = given.run_id
