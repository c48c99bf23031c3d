-- Write steps of running runs, each if the lease of its run is still current, and return them with what operators ask.
-- Called by settle.
WITH given AS MATERIALIZED (
    -- The share lock keeps the lease until the commit. A run that another transaction has locked is left out, so that it does
    -- not delay the others. A recorded step is written again only while it waits.
    SELECT * FROM unnest(
        :run_id::bigint[], :path::text[], :kind::text[], :name::text[], :outcome::text[], :lease_id::bigint[],
        :at::timestamptz[], :took::interval[], :tries::integer[], :due_at::timestamptz[], :digest::bigint[],
        :result::bytea[], :error::text[], :history::text[], :ref::bigint[]
    ) AS row (
        run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
    )
),
mine AS MATERIALIZED (
    SELECT id, lease_id FROM redrive_jobs
    -- As in settle_succeeded: the planner must not use the index of running jobs.
    WHERE id = ANY (:run_id) AND lease_id = ANY (:lease_id) AND state <> 'waiting'
    ORDER BY id
    FOR SHARE SKIP LOCKED
),
written AS (
    INSERT INTO redrive_steps (
        run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
    )
    SELECT given.* FROM given JOIN mine ON mine.id = given.run_id AND mine.lease_id = given.lease_id
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
    RETURNING run_id, path, lease_id, at
)
SELECT
    written.run_id, written.path, written.lease_id, run.cancel_why,
    run.paused_at IS NOT NULL AND (run.paused_until IS NULL OR run.paused_until > written.at) AS paused
FROM written
LEFT JOIN redrive_runs AS run ON run.job_id = written.run_id
