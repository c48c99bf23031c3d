-- Return for each limited queue that is not paused when its earliest ready job after an instant is due.
-- Called by claim, sorted by name, because it locks the queues in that order.
SELECT lane.queue AS name, min(CASE WHEN lane.is_parted THEN (
    SELECT scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND queue = lane.queue AND priority = lane.priority
        AND task = lane.task
        AND scheduled_at > :after
    ORDER BY scheduled_at
    LIMIT 1
) ELSE (
    SELECT scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority AND task = lane.task
        AND scheduled_at > :after
    ORDER BY scheduled_at
    LIMIT 1
) END) AS due_at
FROM redrive_special_lanes AS lane
WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
    AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
    AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
GROUP BY lane.queue
ORDER BY lane.queue
