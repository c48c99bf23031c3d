-- Return the due jobs of these shares of one queue, as many of each share as requested.
-- Called by claim under the lock of the queue; the three lists belong together.
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL::bigint AS head_id
FROM unnest(:partitions::text[], :priorities::bigint[], :tasks::text[]) AS share (partition, priority, task)
CROSS JOIN LATERAL (
    SELECT id, partition, priority, scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue::text
        AND partition = share.partition AND priority = share.priority AND task = share.task
        AND scheduled_at <= :now::timestamptz
    ORDER BY scheduled_at, id
    LIMIT :count::bigint
) AS job
