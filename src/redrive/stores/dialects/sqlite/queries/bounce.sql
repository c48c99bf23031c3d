-- Postpone a debounced job that has not started, at most to its latest start, and return it.
-- Called by enqueue; a job that an operator made due stays due.
UPDATE redrive_jobs SET
    scheduled_at = CASE WHEN hold = 'debounce' THEN min(:scheduled_at, latest_at) ELSE scheduled_at END
WHERE id = :id AND state = 'ready' AND latest_at IS NOT NULL AND started_at IS NULL
RETURNING id
