-- Return the first deliveries of each subscription that have not ended, or are dead and hold up their line.
-- Called by status; NULL stands for any topic or name. The first of a line is the one that holds it.
SELECT
    job.id, job.origin, job.partition, job.state, job.hold, job.attempt, job.scheduled_at, job.error, job.note,
    EXISTS (SELECT 1 FROM redrive_tags WHERE tag = 'out of order' AND job_id = job.id) AS out_of_order
FROM redrive_subscriptions AS sub
CROSS JOIN LATERAL (
        SELECT mine.* FROM redrive_jobs AS mine
        WHERE mine.queue = sub.topic || '.' || sub.name AND mine.task = sub.topic || '.' || sub.name
            AND mine.partition IS NOT NULL AND (
                mine.state = 'ready' OR mine.state = 'running' OR mine.state = 'waiting'
                OR (mine.state = 'dead' AND mine.caught_at IS NULL AND mine.skipped_at IS NULL)
            )
        ORDER BY mine.id
        LIMIT :count::bigint
) AS job
WHERE (:topic::text IS NULL OR sub.topic = :topic) AND (:name::text IS NULL OR sub.name = :name)
ORDER BY job.id
