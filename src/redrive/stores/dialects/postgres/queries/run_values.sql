-- Write the values of runs with current leases, and return what operators ask of these runs.
-- Called by settle; a run without values keeps the ones it has.
UPDATE redrive_runs AS run SET set_values = coalesce(given.set_values, run.set_values)
FROM unnest(:run_id::bigint[], :lease_id::bigint[], :set_values::bytea[], :at::timestamptz[]) AS given (
    run_id, lease_id, set_values, at
)
WHERE run.job_id = ANY (:run_id) AND run.job_id = given.run_id
    AND EXISTS (
        SELECT FROM redrive_jobs
        WHERE id = given.run_id AND lease_id = given.lease_id AND state <> 'waiting'
        OFFSET 0
    )
RETURNING
    run.job_id, given.lease_id, run.cancel_why,
    run.paused_at IS NOT NULL AND (run.paused_until IS NULL OR run.paused_until > given.at) AS paused
