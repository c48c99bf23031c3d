-- Write steps of running runs, each if the lease of its run is still current, and return them with what operators ask.
-- Called by record, first if nothing else is to be written; by call; and by settle for runs that are parked.
-- many: rows
INSERT INTO redrive_steps (
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
)
SELECT
    :run_id, :path, :kind, :name, :outcome, :lease_id, :now, :took, :tries, coalesce(:due_at, :now + :delay), :digest,
    :result, :error, :history, :ref
FROM redrive_jobs
WHERE id = :run_id AND lease_id = :lease_id AND state = 'running'
-- A recorded step is written again only while it waits.
ON CONFLICT (run_id, path) DO UPDATE SET
    lease_id = excluded.lease_id,
    outcome = excluded.outcome,
    at = excluded.at,
    took = excluded.took,
    tries = excluded.tries,
    due_at = excluded.due_at,
    result = excluded.result,
    error = excluded.error,
    history = excluded.history,
    ref = excluded.ref
WHERE redrive_steps.outcome = 'waiting'
    AND (
        excluded.outcome <> 'waiting' OR excluded.tries > redrive_steps.tries
        OR excluded.lease_id <> redrive_steps.lease_id  -- a snooze counts no try
    )
RETURNING
    run_id, path, lease_id, at,
    (SELECT cancel_why FROM redrive_runs WHERE job_id = redrive_steps.run_id) AS cancel_why,
    coalesce((
        SELECT paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now)
        FROM redrive_runs WHERE job_id = redrive_steps.run_id
    ), 0) AS paused
