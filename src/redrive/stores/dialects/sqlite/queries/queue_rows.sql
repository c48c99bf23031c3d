-- Return the due jobs of these shares of one queue, as many of each share as requested.
-- Called by claim under the lock of the queue; the three lists belong together.
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL AS head_id
FROM json_each(:partitions) AS share,
    json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
                AND partition = share.value AND priority = :priorities ->> share.key AND task = :tasks ->> share.key
                AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :count
        ) AS first
    )) AS candidate
JOIN redrive_jobs AS job ON job.id = candidate.value
