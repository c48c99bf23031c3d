-- Make these parked runs due now if what they wait for has come; hold paused ones until the pause or their deadline ends.
-- Called by settle for the runs that it parks, after that.
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
    )
RETURNING redrive_jobs.id
