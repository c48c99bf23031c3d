-- Make parked runs due that wait for one of these signals, and return them.
-- Called by wake, after signals_fresh.
UPDATE redrive_jobs SET scheduled_at = :now
WHERE id IN (SELECT value FROM json_each(:run_ids)) AND state = 'ready' AND hold = 'parked' AND scheduled_at > :now
    AND EXISTS (
        SELECT 1 FROM redrive_signals AS signal
        JOIN redrive_steps AS step ON step.run_id = signal.run_id AND step.outcome = 'waiting'
        WHERE signal.id IN (SELECT value FROM json_each(:ids)) AND signal.run_id = redrive_jobs.id
            AND signal.path IS NULL
            AND (
                (step.kind = 'wait' AND step.name = signal.name)
                OR (step.kind = 'call' AND step.error IS NULL AND signal.name = :child)
            )
    )
RETURNING id
