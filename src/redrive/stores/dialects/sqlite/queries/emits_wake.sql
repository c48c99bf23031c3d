-- Make parked runs due that wait for pending emitted values, and return them.
-- Called by wake, before emits_offered.
UPDATE redrive_jobs SET scheduled_at = :now
WHERE id IN (
        SELECT job.id
        FROM redrive_emits AS emit
        -- CROSS JOIN keeps this order: SQLite might begin with all parked runs.
        CROSS JOIN redrive_steps AS step ON step.name = emit.name AND step.outcome = 'waiting' AND step.kind = 'event'
        CROSS JOIN redrive_jobs AS job ON job.id = step.run_id
        WHERE emit.pending AND job.state = 'ready' AND job.hold = 'parked' AND job.scheduled_at > :now
        LIMIT :count
    )
RETURNING id
