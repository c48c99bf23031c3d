-- The statements of operations/runs/steps.py.

-- name: children_notify
-- Send a signal to called runs whose calls have ended, so that they are due for what children_cancel requests.
-- It runs before children_cancel. Open calls are given as job of the caller, colon and path.
-- postgres
INSERT INTO redrive_signals (run_id, name, key, at, pending)
SELECT child.job_id, :name::text, 'cancel.' || :now::timestamptz, :now::timestamptz, true
FROM redrive_runs AS child
WHERE child.parent_id = ANY (:ids::bigint[]) AND child.cancel_at IS NULL
    AND child.parent_id || ':' || child.parent_path <> ALL (:open::text[])
    AND EXISTS (
        SELECT FROM redrive_jobs WHERE id = child.job_id AND state IN ('ready', 'running', 'waiting') OFFSET 0
    )
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
-- sqlite
INSERT INTO redrive_signals (run_id, name, key, at, pending)
SELECT child.job_id, :name, 'cancel.' || :now, :now, 1
FROM redrive_runs AS child
JOIN redrive_jobs AS job ON job.id = child.job_id
WHERE child.parent_id IN (SELECT value FROM json_each(:ids)) AND child.cancel_at IS NULL
    AND child.parent_id || ':' || child.parent_path NOT IN (SELECT value FROM json_each(:open))
    AND job.state IN ('ready', 'running', 'waiting')
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING

-- name: calls_drop
-- Write an error into the rows of calls of runs that are not open any more, and take it out of the open ones.
-- Open calls are given as job of the caller, colon and path.
-- postgres
UPDATE redrive_steps AS step SET
    error = CASE
        WHEN step.run_id || ':' || step.path = ANY (:open::text[]) THEN NULL
        ELSE json_build_object(
            'types', '[]'::json,
            'message', 'the call of '
                || coalesce((SELECT workflow || ' ' || id FROM redrive_runs WHERE job_id = step.ref), step.name)
                || ' was dropped: ' || :why::text,
            'reason', 'CANCELLED'
        )::text
    END
WHERE step.run_id = ANY (:ids::bigint[])
    -- A run without children so reads none of its steps.
    AND step.path = ANY (ARRAY(
        SELECT child.parent_path FROM unnest(:ids) AS caller (id)
        CROSS JOIN LATERAL (SELECT parent_path FROM redrive_runs WHERE parent_id = caller.id OFFSET 0) AS child
    ))
    AND step.outcome = 'waiting' AND step.kind = 'call'
    AND (step.error IS NULL) <> (step.run_id || ':' || step.path = ANY (:open))
-- sqlite
UPDATE redrive_steps SET
    error = CASE
        WHEN child.parent_id || ':' || child.parent_path IN (SELECT value FROM json_each(:open)) THEN NULL
        ELSE json_object(
            'types', json('[]'),
            'message', 'the call of ' || child.workflow || ' ' || child.id || ' was dropped: ' || :why,
            'reason', 'CANCELLED'
        )
    END
FROM redrive_runs AS child
WHERE child.parent_id IN (SELECT value FROM json_each(:ids)) AND redrive_steps.run_id = child.parent_id
    AND redrive_steps.path = child.parent_path AND redrive_steps.outcome = 'waiting' AND redrive_steps.kind = 'call' AND redrive_steps.ref = child.job_id
    AND (redrive_steps.error IS NULL)
        <> (child.parent_id || ':' || child.parent_path IN (SELECT value FROM json_each(:open)))

-- name: children_cancel
-- Request the cancellation of the runs that these runs have called, and whose calls have ended.
-- Open calls are given as job of the caller, colon and path. It locks no job, so that it waits for no transaction
-- that has locked the job of a called run.
-- postgres
UPDATE redrive_runs AS run SET
    cancel_at = :now::timestamptz,
    cancel_why = (
        SELECT 'its call in ' || workflow || ' ' || id || ' (' || run.parent_path || ') was dropped: ' || :why::text
        FROM redrive_runs WHERE job_id = run.parent_id
    ),
    paused_at = NULL, paused_until = NULL, paused_why = NULL
-- They are locked in the order of their jobs, and the search for them is planned by itself.
WHERE run.job_id = ANY (ARRAY(
        SELECT job_id FROM redrive_runs
        WHERE job_id = ANY (ARRAY(
            SELECT child.job_id FROM unnest(:ids::bigint[]) AS caller (id)
            CROSS JOIN LATERAL (
                SELECT job_id, parent_path FROM redrive_runs WHERE parent_id = caller.id AND cancel_at IS NULL OFFSET 0
            ) AS child
            WHERE caller.id || ':' || child.parent_path <> ALL (:open::text[])
                AND EXISTS (
                    SELECT FROM redrive_jobs
                    WHERE id = child.job_id AND state IN ('ready', 'running', 'waiting')
                    OFFSET 0
                )
        ))
        ORDER BY job_id
        FOR UPDATE
    ))
    AND run.cancel_at IS NULL
-- sqlite
UPDATE redrive_runs SET
    cancel_at = :now,
    cancel_why = 'its call in ' || caller.workflow || ' ' || caller.id || ' (' || redrive_runs.parent_path || ') was dropped: '
        || :why,
    paused_at = NULL, paused_until = NULL, paused_why = NULL
FROM redrive_runs AS caller, redrive_jobs AS job
WHERE redrive_runs.parent_id IN (SELECT value FROM json_each(:ids)) AND redrive_runs.cancel_at IS NULL
    AND redrive_runs.parent_id || ':' || redrive_runs.parent_path NOT IN (SELECT value FROM json_each(:open))
    AND caller.job_id = redrive_runs.parent_id AND job.id = redrive_runs.job_id AND job.state IN ('ready', 'running', 'waiting')

-- name: runs_claimed
-- Return the runs of these jobs, and which other rows they have.
-- transaction: none
-- postgres
SELECT
    EXISTS (SELECT FROM redrive_steps WHERE run_id = run.job_id OFFSET 0) AS has_steps,
    EXISTS (
        SELECT FROM redrive_signals WHERE run_id = run.job_id AND path IS NULL AND name <> :child::text OFFSET 0
    ) AS has_signals,
    EXISTS (
        SELECT FROM redrive_steps
        WHERE run_id = run.job_id AND outcome = 'waiting' AND kind IN ('event', 'call')
        OFFSET 0
    ) AS has_waits,
-- include run_columns
FROM redrive_runs AS run
CROSS JOIN LATERAL (SELECT hold, note, unreadable_at FROM redrive_jobs WHERE id = run.job_id OFFSET 0) AS job
WHERE run.job_id = ANY (:ids::bigint[])
-- sqlite
SELECT
    EXISTS (SELECT 1 FROM redrive_steps WHERE run_id = run.job_id) AS has_steps,
    EXISTS (SELECT 1 FROM redrive_signals WHERE run_id = run.job_id AND path IS NULL AND name <> :child) AS has_signals,
    EXISTS (
        SELECT 1 FROM redrive_steps
        WHERE run_id = run.job_id AND outcome = 'waiting' AND kind IN ('event', 'call')
    ) AS has_waits,
-- include run_columns
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.job_id IN (SELECT value FROM json_each(:ids))

-- name: steps_of
-- Return the recorded steps of these runs.
-- transaction: none
-- both
SELECT
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref, seq
FROM redrive_steps
WHERE run_id = ANY (:ids::bigint[])

-- name: emits_for
-- Return the emitted values that these runs wait for.
-- transaction: none
-- postgres
SELECT step.run_id, emit.name, emit.payload, emit.at
FROM redrive_steps AS step
CROSS JOIN LATERAL (SELECT name, payload, at FROM redrive_emits WHERE name = step.name OFFSET 0) AS emit
-- As in settle_succeeded: the planner must not use the index of waits for events.
WHERE step.run_id = ANY (:ids::bigint[]) AND step.outcome = 'waiting' AND step.kind || '' = 'event'
-- sqlite
SELECT step.run_id, emit.name, emit.payload, emit.at
FROM redrive_steps AS step
JOIN redrive_emits AS emit ON emit.name = step.name
WHERE step.run_id IN (SELECT value FROM json_each(:ids)) AND step.outcome = 'waiting' AND step.kind = 'event'

-- name: children_ended
-- Return the ends of the child runs that these runs wait for; a call with an error was dropped.
-- transaction: none
-- postgres
SELECT step.run_id, job.id AS job_id, job.state, answer.result, coalesce(job.error, job.note) AS error, job.reason
FROM redrive_steps AS step
CROSS JOIN LATERAL (SELECT id, state, error, note, reason FROM redrive_jobs WHERE id = step.ref OFFSET 0) AS job
LEFT JOIN LATERAL (
    SELECT result FROM redrive_results WHERE job_id = job.id AND job.state = 'succeeded' OFFSET 0
) AS answer ON true
WHERE step.run_id = ANY (:ids::bigint[]) AND step.outcome = 'waiting' AND step.kind = 'call'
    AND step.error IS NULL AND job.state IN ('succeeded', 'dead', 'cancelled')
-- sqlite
SELECT step.run_id, job.id AS job_id, job.state, answer.result, coalesce(job.error, job.note) AS error, job.reason
FROM redrive_steps AS step
JOIN redrive_jobs AS job ON job.id = step.ref
LEFT JOIN redrive_results AS answer ON answer.job_id = job.id AND job.state = 'succeeded'
WHERE step.run_id IN (SELECT value FROM json_each(:ids)) AND step.outcome = 'waiting' AND step.kind = 'call'
    AND step.error IS NULL AND job.state IN ('succeeded', 'dead', 'cancelled')

-- name: signals_unread
-- Return the first unread signals of runs, of one name if it is given; without those of the ends of child runs.
-- transaction: none
-- many: rows
-- postgres
SELECT sent.id, sent.run_id, sent.name, sent.key, sent.payload, sent.at, sent.path
FROM unnest(:run_id::bigint[], :name::text[], :child::text[], :count::bigint[]) AS given (run_id, name, child, count)
CROSS JOIN LATERAL (
    SELECT id, run_id, name, key, payload, at, path FROM redrive_signals
    WHERE run_id = given.run_id AND path IS NULL AND name <> given.child
        AND (given.name IS NULL OR name = given.name)
    ORDER BY id
    LIMIT given.count
) AS sent
-- sqlite
SELECT id, run_id, name, key, payload, at, path FROM redrive_signals
WHERE run_id = :run_id AND path IS NULL AND name <> :child AND (:name IS NULL OR name = :name)
ORDER BY id
LIMIT :count

-- name: signals_read
-- Mark signals as received by these steps.
-- postgres
UPDATE redrive_signals AS signal SET path = given.path, pending = false
FROM unnest(:id::bigint[], :run_id::bigint[], :path::text[]) AS given (id, run_id, path)
WHERE signal.id = ANY (:id) AND signal.run_id = ANY (:run_id)
    AND signal.id = given.id AND signal.run_id = given.run_id AND signal.path IS NULL
-- sqlite
UPDATE redrive_signals SET path = :path, pending = 0 WHERE id = :id AND run_id = :run_id AND path IS NULL

-- name: steps_put
-- Write steps of running runs, each if the lease of its run is still current, and return them with what operators
-- ask.
-- The first statement of its operation if nothing else is to be written.
-- many: rows
-- postgres
WITH given AS MATERIALIZED (
    -- One document is written and read in less time than sixteen arrays. An instant that is not given is the database's.
    SELECT row.*, coalesce(row.now, clock.now) AS at
    FROM json_to_recordset(:rows::json) AS row (
        run_id bigint, path text, kind text, name text, outcome text, lease_id bigint, now timestamptz, took interval,
        tries integer, delay interval, due_at timestamptz, digest bigint, result text, error text, history text, ref bigint,
        seq bigint, before text, before_at timestamptz
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
        run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref, seq
    )
    SELECT
        run_id, path, kind, name, outcome, given.lease_id, at, took, tries, coalesce(due_at, at + delay), digest,
        decode(result, 'base64'), error, history, ref, seq
    FROM given JOIN mine ON mine.id = given.run_id AND mine.lease_id = given.lease_id
    -- A standby that has taken over may lack the row before it, which the writer has seen committed, or have it as it was
    -- before: waiting.
    WHERE given.before IS NULL OR EXISTS (
        SELECT FROM redrive_steps WHERE run_id = given.run_id AND path = given.before AND at >= given.before_at OFFSET 0
    )
    -- A recorded step is written again only while it waits, or if the body has cut off its call.
    ON CONFLICT (run_id, path) DO UPDATE SET
        lease_id = excluded.lease_id,
        outcome = excluded.outcome,
        at = excluded.at,
        took = excluded.took,
        tries = excluded.tries,
        due_at = excluded.due_at,
        result = CASE
            -- The effect of a step that is dropped stays, and may have to be undone.
            WHEN excluded.outcome = 'dropped' AND redrive_steps.kind = 'step' AND redrive_steps.outcome = 'ok'
                THEN coalesce(excluded.result, redrive_steps.result, 'null'::bytea)
            ELSE excluded.result
        END,
        error = excluded.error,
        history = coalesce(excluded.history, redrive_steps.history),
        ref = coalesce(excluded.ref, redrive_steps.ref),
        seq = excluded.seq
    WHERE excluded.outcome = 'dropped'
        OR (
            redrive_steps.outcome = 'waiting'
            AND (
                excluded.outcome <> 'waiting' OR excluded.tries > redrive_steps.tries
                OR excluded.lease_id <> redrive_steps.lease_id  -- a snooze counts no try
            )
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
-- sqlite
INSERT INTO redrive_steps (
    run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, digest, result, error, history, ref, seq
)
SELECT
    :run_id, :path, :kind, :name, :outcome, :lease_id, :now, :took, :tries, coalesce(:due_at, :now + :delay), :digest,
    :result, :error, :history, :ref, :seq
FROM redrive_jobs
WHERE id = :run_id AND lease_id = :lease_id AND state = 'running'
-- A recorded step is written again only while it waits, or if the body has cut off its call.
ON CONFLICT (run_id, path) DO UPDATE SET
    lease_id = excluded.lease_id,
    outcome = excluded.outcome,
    at = excluded.at,
    took = excluded.took,
    tries = excluded.tries,
    due_at = excluded.due_at,
    result = CASE
        -- The effect of a step that is dropped stays, and may have to be undone.
        WHEN excluded.outcome = 'dropped' AND redrive_steps.kind = 'step' AND redrive_steps.outcome = 'ok'
            THEN coalesce(excluded.result, redrive_steps.result, CAST('null' AS BLOB))
        ELSE excluded.result
    END,
    error = excluded.error,
    history = coalesce(excluded.history, redrive_steps.history),
    ref = coalesce(excluded.ref, redrive_steps.ref),
    seq = excluded.seq
WHERE excluded.outcome = 'dropped'
    OR (
        redrive_steps.outcome = 'waiting'
        AND (
            excluded.outcome <> 'waiting' OR excluded.tries > redrive_steps.tries
            OR excluded.lease_id <> redrive_steps.lease_id  -- a snooze counts no try
        )
    )
RETURNING
    run_id, path, lease_id, at,
    (SELECT cancel_why FROM redrive_runs WHERE job_id = redrive_steps.run_id) AS cancel_why,
    coalesce((
        SELECT paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now)
        FROM redrive_runs WHERE job_id = redrive_steps.run_id
    ), 0) AS paused

-- name: steps_asked
-- Return the recorded rows of these steps, and whether the lease of their run is current.
-- For the steps that the caller has not written.
-- transaction: none
-- many: rows
-- postgres
SELECT
    given.run_id, given.path, given.lease_id,
    EXISTS (
        SELECT FROM redrive_jobs
        WHERE id = given.run_id AND lease_id = given.lease_id AND state <> 'waiting'
        OFFSET 0
    ) AS is_current,
    given.before IS NULL OR EXISTS (
        SELECT FROM redrive_steps WHERE run_id = given.run_id AND path = given.before AND at >= given.before_at OFFSET 0
    ) AS is_anchored,
    step.lease_id AS recorded_by, step.outcome, step.at, step.due_at, step.tries
FROM unnest(:run_id::bigint[], :path::text[], :lease_id::bigint[], :before::text[], :before_at::timestamptz[])
    AS given (run_id, path, lease_id, before, before_at)
LEFT JOIN LATERAL (
    SELECT lease_id, outcome, at, due_at, tries FROM redrive_steps WHERE run_id = given.run_id AND path = given.path OFFSET 0
) AS step ON true
-- sqlite
SELECT
    :run_id AS run_id, :path AS path, :lease_id AS lease_id,
    EXISTS (
        SELECT 1 FROM redrive_jobs WHERE id = :run_id AND lease_id = :lease_id AND state = 'running'
    ) AS is_current,
    true AS is_anchored,
    step.lease_id AS recorded_by, step.outcome, step.at, step.due_at, step.tries
FROM (SELECT 1) AS one
LEFT JOIN redrive_steps AS step ON step.run_id = :run_id AND step.path = :path

-- name: run_values
-- Write the values of runs with current leases, and return what operators ask of these runs.
-- A run without values keeps the ones it has.
-- many: rows
-- postgres
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
-- sqlite
UPDATE redrive_runs SET set_values = coalesce(:set_values, set_values)
WHERE job_id = :run_id
    AND EXISTS (SELECT 1 FROM redrive_jobs WHERE id = :run_id AND lease_id = :lease_id AND state = 'running')
RETURNING
    job_id, :lease_id, cancel_why,
    paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :at) AS paused

-- name: waits_drop
-- Delete the waits of these runs for signals and values that are not open; open ones are given as job, colon and
-- path.
-- For runs that are parked, before runs_parked.
-- postgres
DELETE FROM redrive_steps
WHERE run_id = ANY (:ids::bigint[]) AND outcome = 'waiting' AND kind IN ('wait', 'event')
    AND run_id || ':' || path <> ALL (:open::text[])
-- sqlite
DELETE FROM redrive_steps
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND outcome = 'waiting' AND kind IN ('wait', 'event')
    AND run_id || ':' || path NOT IN (SELECT value FROM json_each(:open))

-- name: runs_parked
-- Make these parked runs due now if what they wait for has come; hold paused ones until the pause or their deadline
-- ends.
-- postgres
UPDATE redrive_jobs AS job SET
    -- Their rows are locked by then: a signal that arrived between the look of the worker and this statement is found here,
    -- and a later one finds the run parked.
    hold = CASE WHEN run.paused_at IS NULL THEN job.hold ELSE 'paused' END,
    note = coalesce('paused: ' || run.paused_why, job.note),
    scheduled_at = CASE
        WHEN run.paused_at IS NULL THEN :now::timestamptz
        ELSE least(
            greatest(coalesce(run.paused_until, :far::timestamptz), :now),
            :now + (:left::bigint[])[array_position(:ids::bigint[], job.id)] * interval '1 microsecond'
        )
    END
FROM redrive_runs AS run
WHERE job.id = ANY (:ids::bigint[]) AND run.job_id = ANY (:ids) AND run.job_id = job.id
    -- As in settle_succeeded: the planner must not use the index of held jobs.
    AND job.state = 'ready' AND coalesce(job.hold, '') = 'parked'
    AND (
        (run.paused_at IS NOT NULL AND (run.paused_until IS NULL OR run.paused_until > :now))
        -- They have parked because of a pause, which has ended since.
        OR (run.job_id = ANY (:paused::bigint[]) AND (run.paused_at IS NULL OR run.paused_until <= :now))
        OR EXISTS (
            SELECT FROM redrive_steps AS step
            CROSS JOIN LATERAL (
                SELECT FROM redrive_signals
                WHERE run_id = step.run_id AND path IS NULL AND name = step.name
                OFFSET 0
            ) AS signal
            WHERE step.run_id = job.id AND step.outcome = 'waiting' AND step.kind = 'wait'
            OFFSET 0
        )
        OR EXISTS (
            SELECT FROM redrive_steps AS step
            CROSS JOIN LATERAL (SELECT FROM redrive_emits WHERE name = step.name OFFSET 0) AS emit
            WHERE step.run_id = job.id AND step.outcome = 'waiting' AND step.kind = 'event'
            OFFSET 0
        )
        OR EXISTS (
            SELECT FROM redrive_steps AS step
            CROSS JOIN LATERAL (
                SELECT FROM redrive_jobs
                WHERE id = step.ref AND state IN ('succeeded', 'dead', 'cancelled')
                OFFSET 0
            ) AS child
            WHERE step.run_id = job.id AND step.outcome = 'waiting' AND step.kind = 'call'
                AND step.error IS NULL
            OFFSET 0
        )
        OR (
            run.cancel_at IS NOT NULL
            AND NOT EXISTS (SELECT FROM redrive_steps WHERE run_id = job.id AND kind = 'cancel' OFFSET 0)
        )
        -- A standby that has taken over may lack the row of a wait, which nothing would end.
        OR job.id = ANY (ARRAY(
            SELECT wait.run_id FROM unnest(:waiting::bigint[], :paths::text[]) AS wait (run_id, path)
            WHERE NOT EXISTS (SELECT FROM redrive_steps WHERE run_id = wait.run_id AND path = wait.path OFFSET 0)
        ))
    )
RETURNING job.id
-- sqlite
UPDATE redrive_jobs SET
    hold = CASE WHEN run.paused_at IS NULL THEN hold ELSE 'paused' END,
    note = coalesce('paused: ' || run.paused_why, note),
    scheduled_at = CASE
        WHEN run.paused_at IS NULL THEN :now
        ELSE min(
            max(coalesce(run.paused_until, :far), :now),
            :now + (
                SELECT json_extract(:left, '$[' || given.key || ']') FROM json_each(:ids) AS given
                WHERE given.value = redrive_jobs.id
            )
        )
    END
FROM redrive_runs AS run
WHERE redrive_jobs.id IN (SELECT value FROM json_each(:ids)) AND run.job_id = redrive_jobs.id AND state = 'ready'
    AND hold = 'parked'
    AND (
        (run.paused_at IS NOT NULL AND (run.paused_until IS NULL OR run.paused_until > :now))
        -- They have parked because of a pause, which has ended since.
        OR (
            run.job_id IN (SELECT value FROM json_each(:paused))
            AND (run.paused_at IS NULL OR run.paused_until <= :now)
        )
        OR EXISTS (
            SELECT 1 FROM redrive_steps AS step
            JOIN redrive_signals AS signal ON signal.run_id = step.run_id AND signal.path IS NULL
            WHERE step.run_id = redrive_jobs.id AND step.outcome = 'waiting' AND step.kind = 'wait' AND signal.name = step.name
        )
        OR EXISTS (
            SELECT 1 FROM redrive_steps AS step
            JOIN redrive_emits AS emit ON emit.name = step.name
            WHERE step.run_id = redrive_jobs.id AND step.outcome = 'waiting' AND step.kind = 'event'
        )
        OR EXISTS (
            SELECT 1 FROM redrive_steps AS step
            JOIN redrive_jobs AS child ON child.id = step.ref
            WHERE step.run_id = redrive_jobs.id AND step.outcome = 'waiting' AND step.kind = 'call'
                AND step.error IS NULL
                AND child.state IN ('succeeded', 'dead', 'cancelled')
        )
        OR (
            run.cancel_at IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM redrive_steps WHERE run_id = redrive_jobs.id AND kind = 'cancel')
        )
        OR redrive_jobs.id IN (
            SELECT wait.value FROM json_each(:waiting) AS wait
            WHERE NOT EXISTS (
                SELECT 1 FROM redrive_steps
                WHERE run_id = wait.value AND path = json_extract(:paths, '$[' || wait.key || ']')
            )
        )
    )
RETURNING redrive_jobs.id

-- name: run_restart
-- Begin the next epoch of runs.
-- postgres
UPDATE redrive_runs AS run SET epoch = run.epoch + 1, set_values = coalesce(given.set_values, run.set_values)
FROM unnest(:run_id::bigint[], :set_values::bytea[]) AS given (run_id, set_values)
WHERE run.job_id = ANY (:run_id) AND run.job_id = given.run_id
-- sqlite
UPDATE redrive_runs SET epoch = epoch + 1, set_values = coalesce(:set_values, set_values) WHERE job_id = :run_id

-- name: run_payloads
-- Replace the arguments of runs that begin again.
-- postgres
UPDATE redrive_payloads AS kept SET payload = given.payload
FROM unnest(:job_id::bigint[], :payload::bytea[]) AS given (job_id, payload)
WHERE kept.job_id = ANY (:job_id) AND kept.job_id = given.job_id
-- sqlite
UPDATE redrive_payloads SET payload = :payload WHERE job_id = :job_id

-- name: steps_forget
-- Delete the recorded steps of runs.
-- For runs that begin again.
-- both
DELETE FROM redrive_steps WHERE run_id = ANY (:ids::bigint[])

-- name: signals_forget
-- Delete the signals that runs have read.
-- both
DELETE FROM redrive_signals WHERE run_id = ANY (:ids::bigint[]) AND path IS NOT NULL
