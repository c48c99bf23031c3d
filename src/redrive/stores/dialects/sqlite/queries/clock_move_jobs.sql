-- Move the start and the end of the waits of unfinished jobs by a time span. Jobs that were due stay due.
-- Called by keep, when the time of the database follows a clock that was set. A server's clock is never moved.
UPDATE redrive_jobs SET
    scheduled_at = scheduled_at + :step,
    latest_at = latest_at + :step,
    expires_at = expires_at + :step,
    started_at = started_at + :step,
    claimed_at = claimed_at + :step
WHERE id IN (
    SELECT id FROM redrive_jobs WHERE state = 'running'
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'waiting'
    UNION ALL
    SELECT id FROM redrive_jobs WHERE hold IS NOT NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NULL AND hold IS NULL AND scheduled_at > :now
    UNION ALL
    SELECT id FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND hold IS NULL AND scheduled_at > :now
)
