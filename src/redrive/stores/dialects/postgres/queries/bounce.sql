-- Puts a debounced job off that has not started, but not beyond its latest start, and answers it if so.
-- Called by enqueue; one that an operator made due stays due.
UPDATE redrive_jobs SET
    scheduled_at = CASE
        WHEN hold = 'debounce' THEN least(:scheduled_at::timestamptz, latest_at) ELSE scheduled_at
    END
WHERE id = :id::bigint AND state = 'ready' AND latest_at IS NOT NULL AND started_at IS NULL
RETURNING id
