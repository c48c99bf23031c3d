-- Return the dead deliveries of a subscription that no catch task has caught, the latest first; it reads all dead jobs.
-- Called by status.
SELECT
    id, origin, partition, state, hold, attempt, scheduled_at, error, note,
    EXISTS (SELECT 1 FROM redrive_tags WHERE tag = 'out of order' AND job_id = job.id) AS out_of_order
FROM redrive_jobs AS job
WHERE state = 'dead' AND caught_at IS NULL AND task = :task::text AND partition IS NOT NULL
ORDER BY id DESC
LIMIT :count::bigint
