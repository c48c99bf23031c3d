-- Return the first job of one line of an ordered queue, which blocks those behind it.
-- Called by status and circumstances.
SELECT id, state
FROM redrive_jobs
WHERE queue = :queue AND partition = :partition AND partition IS NOT NULL AND (
    state = 'ready' OR state = 'running' OR state = 'waiting'
    OR (state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL)
)
ORDER BY id
LIMIT 1
