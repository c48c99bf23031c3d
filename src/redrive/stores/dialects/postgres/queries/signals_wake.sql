-- Make parked runs due that wait for one of these signals, and return them.
-- Called by wake, after signals_fresh.
UPDATE redrive_jobs AS job SET scheduled_at = :now::timestamptz
-- As in settle_succeeded: the planner must not use the index of held jobs.
WHERE job.id = ANY (:run_ids::bigint[]) AND job.state = 'ready' AND coalesce(job.hold, '') = 'parked'
    AND job.scheduled_at > :now
    AND EXISTS (
        SELECT FROM redrive_signals AS signal
        CROSS JOIN LATERAL (
            SELECT FROM redrive_steps
            WHERE run_id = signal.run_id AND outcome = 'waiting' AND (
                (kind = 'wait' AND name = signal.name) OR (kind = 'call' AND error IS NULL AND signal.name = :child::text)
            )
            OFFSET 0
        ) AS step
        WHERE signal.run_id = job.id AND signal.id = ANY (:ids::bigint[]) AND signal.path IS NULL
        OFFSET 0
    )
RETURNING job.id
