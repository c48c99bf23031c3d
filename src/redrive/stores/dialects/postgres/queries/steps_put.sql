-- Write steps of running runs, each if the lease of its run is still current, and return them with what operators ask.
-- Called by record, first if nothing else is to be written; by call; and by settle for runs that are parked.
WITH given AS MATERIALIZED (
    -- One document is written and read in less time than sixteen arrays. An instant that is not given is the database's.
    SELECT row.*, coalesce(row.now, clock.now) AS at
    FROM json_to_recordset(:rows::json) AS row (
        run_id bigint, path text, kind text, name text, outcome text, lease_id bigint, now timestamptz, took interval,
        tries integer, delay interval, due_at timestamptz, digest bigint, result text, error text, history text, ref bigint
    )
    CROSS JOIN redrive_clock AS clock
),
mine AS MATERIALIZED (
    -- The share lock keeps the lease until the commit. A run that another transaction has locked is left out, so that it does
    -- not delay the others.
    SELECT id, lease_id FROM redrive_jobs
    -- As in settle_succeeded: the planner must not use the index of running jobs.
    WHERE id = ANY (ARRAY(SELECT run_id FROM given)) AND lease_id = ANY (ARRAY(SELECT lease_id FROM given))
        AND state <> 'waiting'
    ORDER BY id
    FOR SHARE SKIP LOCKED
),
written AS (
    INSERT INTO redrive_steps (
        run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref
    )
    SELECT
        run_id, path, kind, name, outcome, given.lease_id, at, took, tries, coalesce(due_at, at + delay), digest,
        decode(result, 'base64'), error, history, ref
    FROM given JOIN mine ON mine.id = given.run_id AND mine.lease_id = given.lease_id
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
    RETURNING run_id, path, lease_id, at
)
SELECT
    written.run_id, written.path, written.lease_id, written.at, run.cancel_why,
    coalesce(run.paused_at IS NOT NULL AND (run.paused_until IS NULL OR run.paused_until > written.at), false) AS paused
FROM written
LEFT JOIN LATERAL (
    SELECT cancel_why, paused_at, paused_until FROM redrive_runs WHERE job_id = written.run_id OFFSET 0
) AS run ON true
