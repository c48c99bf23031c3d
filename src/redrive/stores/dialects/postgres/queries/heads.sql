-- Return the due jobs of plain queues that come first by priority, due time and id; the claim may take them.
-- Called by claim if jobs of limited queues are due as well, so that all are sorted together.
SELECT head.id, head.partition, head.priority, head.scheduled_at, NULL::bigint AS head_id
FROM redrive_lanes AS lane
CROSS JOIN LATERAL (
    SELECT id, partition, priority, scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
        AND task = lane.task AND scheduled_at <= :now::timestamptz
    ORDER BY scheduled_at, id
    LIMIT :count::bigint
) AS head
WHERE (:queues::text[] IS NULL OR lane.queue = ANY (:queues))
    AND (:excluded::text[] IS NULL OR lane.queue <> ALL (:excluded))
    AND (:tasks::text[] IS NULL OR lane.task = ANY (:tasks))
ORDER BY head.priority, head.scheduled_at, head.id
LIMIT :count
