-- Make these parked runs due now if what they wait for has come; hold paused ones until the pause or their deadline ends.
-- Called by settle for the runs that it parks.
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
    )
RETURNING job.id
