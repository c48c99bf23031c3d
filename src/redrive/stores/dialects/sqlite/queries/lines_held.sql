-- Return the lines of a queue that have a job which holds up the events behind it; of the given ones, or of all.
-- Called by attach and turn.
SELECT DISTINCT partition FROM redrive_jobs
WHERE queue = :queue AND partition IS NOT NULL
    AND (:lines IS NULL OR partition IN (SELECT value FROM json_each(:lines))) AND (
        state = 'ready' OR state = 'running' OR state = 'waiting'
        OR (state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL)
    )
