-- Mark emitted values as offered once all runs that wait for them are woken, and return them.
-- Called by wake.
UPDATE redrive_emits SET pending = EXISTS (
    SELECT 1 FROM redrive_steps AS step
    JOIN redrive_jobs AS job ON job.id = step.run_id
    WHERE step.outcome = 'waiting' AND step.kind = 'event' AND step.name = redrive_emits.name
        AND job.state = 'ready' AND job.hold = 'parked' AND job.scheduled_at > :now
)
WHERE pending
RETURNING name, pending
