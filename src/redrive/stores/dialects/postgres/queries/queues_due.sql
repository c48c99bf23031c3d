-- Return for each limited queue that is not paused when its earliest ready job after an instant is due.
-- Called by claim, sorted by name, because it locks the queues in that order.
SELECT lane.queue AS name, min(head.scheduled_at) AS due_at
FROM redrive_special_lanes AS lane
LEFT JOIN LATERAL (
    (
        SELECT scheduled_at FROM redrive_jobs
        WHERE lane.is_parted AND state = 'ready' AND partition IS NOT NULL
            AND queue = lane.queue AND priority = lane.priority AND task = lane.task
            AND scheduled_at > :after::timestamptz
        ORDER BY scheduled_at
        LIMIT 1
    )
    UNION ALL
    (
        SELECT scheduled_at FROM redrive_jobs
        WHERE NOT lane.is_parted AND state = 'ready' AND partition IS NULL
            AND queue = lane.queue AND priority = lane.priority AND task = lane.task
            AND scheduled_at > :after::timestamptz
        ORDER BY scheduled_at
        LIMIT 1
    )
) AS head ON true
WHERE (:queues::text[] IS NULL OR lane.queue = ANY (:queues))
    AND (:excluded::text[] IS NULL OR lane.queue <> ALL (:excluded))
    AND (:tasks::text[] IS NULL OR lane.task = ANY (:tasks))
GROUP BY lane.queue
ORDER BY lane.queue
