-- Return the deliveries of a subscription that have not ended, or are dead and hold up their line, oldest first.
-- Called by the commands of operators. The first of a line is the one that holds it.
SELECT
    id, origin, partition, state, hold, attempt, scheduled_at, error, note,
    EXISTS (SELECT 1 FROM redrive_tags WHERE tag = 'out of order' AND job_id = job.id) AS out_of_order
FROM redrive_jobs AS job
WHERE queue = :queue::text AND task = :task::text AND partition IS NOT NULL AND (
        state = 'ready' OR state = 'running' OR state = 'waiting'
        OR (state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL)
    )
ORDER BY id
LIMIT :count::bigint
