-- Make parked runs due that wait for one of these signals, and return them.
-- Called by wake, after signals_fresh.
UPDATE redrive_jobs AS job SET scheduled_at = :now::timestamptz
WHERE job.id = ANY (:run_ids::bigint[]) AND job.state = 'ready' AND job.hold = 'parked' AND job.scheduled_at > :now
    AND EXISTS (
        SELECT FROM redrive_signals AS signal
        JOIN redrive_steps AS step ON step.run_id = signal.run_id AND step.outcome = 'waiting'
        WHERE signal.id = ANY (:ids::bigint[]) AND signal.run_id = job.id AND signal.path IS NULL
            AND (
                (step.kind = 'wait' AND step.name = signal.name)
                OR (step.kind = 'call' AND signal.name = :child::text)
            )
    )
RETURNING job.id
