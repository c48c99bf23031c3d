-- Write the values of runs with current leases, and return what operators ask of these runs.
-- Called by record and settle; a run without values keeps the ones it has.
-- many: rows
UPDATE redrive_runs SET set_values = coalesce(:set_values, set_values)
WHERE job_id = :run_id
    AND EXISTS (SELECT 1 FROM redrive_jobs WHERE id = :run_id AND lease_id = :lease_id AND state = 'running')
RETURNING
    job_id, :lease_id, cancel_why,
    paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :at) AS paused
