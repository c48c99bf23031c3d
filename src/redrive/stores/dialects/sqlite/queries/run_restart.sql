-- Begin the next epoch of runs.
-- Called by settle for runs that begin again, with steps_forget.
UPDATE redrive_runs SET epoch = epoch + 1, set_values = coalesce(:set_values, set_values) WHERE job_id = :run_id
