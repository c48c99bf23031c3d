-- Return the recorded rows of these steps, and whether the lease of their run is current.
-- Called by record, call and settle for the steps that they have not written.
-- transaction: none
SELECT
    given.run_id, given.path, given.lease_id,
    EXISTS (
        SELECT FROM redrive_jobs
        WHERE id = given.run_id AND lease_id = given.lease_id AND state <> 'waiting'
        OFFSET 0
    ) AS is_current,
    step.lease_id AS recorded_by, step.outcome, step.at, step.due_at, step.tries
FROM unnest(:run_id::bigint[], :path::text[], :lease_id::bigint[]) AS given (run_id, path, lease_id)
LEFT JOIN LATERAL (
    SELECT lease_id, outcome, at, due_at, tries FROM redrive_steps WHERE run_id = given.run_id AND path = given.path OFFSET 0
) AS step ON true
