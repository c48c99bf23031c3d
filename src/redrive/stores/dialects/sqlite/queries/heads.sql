-- Return the due jobs of plain queues that come first by priority, due time and id; the claim may take them.
-- Called by claim if jobs of limited queues are due as well, so that all are sorted together.
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL AS head_id
FROM redrive_lanes AS lane,
    json_each((
        SELECT json_group_array(head.id)
        FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :count
        ) AS head
    )) AS candidate
JOIN redrive_jobs AS job ON job.id = candidate.value
WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
    AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
    AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
ORDER BY job.priority, job.scheduled_at, job.id
LIMIT :count
