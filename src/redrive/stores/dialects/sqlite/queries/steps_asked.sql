-- Return the recorded rows of these steps, and whether the lease of their run is current.
-- Called by record, call and settle for the steps that they have not written.
-- many: rows
SELECT
    :run_id AS run_id, :path AS path, :lease_id AS lease_id,
    EXISTS (
        SELECT 1 FROM redrive_jobs WHERE id = :run_id AND lease_id = :lease_id AND state = 'running'
    ) AS is_current,
    step.lease_id AS recorded_by, step.outcome, step.at, step.due_at, step.tries
FROM (SELECT 1) AS one
LEFT JOIN redrive_steps AS step ON step.run_id = :run_id AND step.path = :path
