-- Make these parked runs due now if what they wait for has arrived, and hold those that an operator has paused.
-- Called by settle for the runs that it parks.
UPDATE redrive_jobs AS job SET
    -- Their rows are locked by then: a signal that arrived between the look of the worker and this statement is found here,
    -- and a later one finds the run parked.
    hold = CASE WHEN run.paused_at IS NULL THEN job.hold ELSE 'paused' END,
    note = coalesce('paused: ' || run.paused_why, job.note),
    scheduled_at = CASE
        WHEN run.paused_at IS NULL THEN :now::timestamptz
        ELSE greatest(coalesce(run.paused_until, :far::timestamptz), :now)
    END
FROM redrive_runs AS run
WHERE job.id = ANY (:ids::bigint[]) AND run.job_id = job.id AND job.state = 'ready' AND job.hold = 'parked'
    AND (
        (run.paused_at IS NOT NULL AND (run.paused_until IS NULL OR run.paused_until > :now))
        OR EXISTS (
            SELECT FROM redrive_steps AS step
            JOIN redrive_signals AS signal ON signal.run_id = step.run_id AND signal.path IS NULL
            WHERE step.run_id = job.id AND step.outcome = 'waiting' AND step.kind = 'wait' AND signal.name = step.name
        )
        OR EXISTS (
            SELECT FROM redrive_steps AS step
            JOIN redrive_emits AS emit ON emit.name = step.name
            WHERE step.run_id = job.id AND step.outcome = 'waiting' AND step.kind = 'event'
        )
        OR EXISTS (
            SELECT FROM redrive_steps AS step
            JOIN redrive_jobs AS child ON child.id = step.ref
            WHERE step.run_id = job.id AND step.outcome = 'waiting' AND step.kind = 'call'
                AND child.state IN ('succeeded', 'dead', 'cancelled')
        )
        OR (
            run.cancel_at IS NOT NULL
            AND NOT EXISTS (SELECT FROM redrive_steps WHERE run_id = job.id AND kind = 'cancel')
        )
    )
RETURNING job.id
