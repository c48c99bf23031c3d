-- Write the values of runs with current leases, and return what operators ask of these runs.
-- Called by record and settle; a run without values keeps the ones it has.
WITH mine AS MATERIALIZED (
    -- The job is locked before its run, as by operators; in another order each could wait for the other. As in steps_put, a
    -- run that another transaction has locked is left out.
    SELECT id, lease_id FROM redrive_jobs
    WHERE id = ANY (:run_id::bigint[]) AND lease_id = ANY (:lease_id::bigint[]) AND state <> 'waiting'
    ORDER BY id
    FOR SHARE SKIP LOCKED
)
UPDATE redrive_runs AS run SET set_values = coalesce(given.set_values, run.set_values)
FROM unnest(:run_id, :lease_id, :set_values::bytea[], :at::timestamptz[]) AS given (run_id, lease_id, set_values, at)
JOIN mine ON mine.id = given.run_id AND mine.lease_id = given.lease_id
WHERE run.job_id = ANY (:run_id) AND run.job_id = given.run_id
RETURNING
    run.job_id, given.lease_id, run.cancel_why,
    run.paused_at IS NOT NULL AND (run.paused_until IS NULL OR run.paused_until > given.at) AS paused
