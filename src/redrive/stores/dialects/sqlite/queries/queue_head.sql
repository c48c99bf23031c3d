-- Return the first job of each of these lines of ordered queues, which blocks those behind it.
-- Called by status and circumstances.
-- many: rows
SELECT queue, partition, id, state
FROM redrive_jobs
WHERE queue = :queue AND partition = :partition AND partition IS NOT NULL AND (
    state = 'ready' OR state = 'running' OR state = 'waiting'
    OR (state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL)
)
ORDER BY id
LIMIT 1
