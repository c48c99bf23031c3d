-- Return the instant, as clock does, and the due times of the earliest ready jobs of plain and of limited queues.
-- Called by claim, to find how long an idle worker may rest; one statement, because it runs often.
-- transaction: none
-- include lanes.sql
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (
        SELECT min(head.scheduled_at)
        FROM lane
        CROSS JOIN LATERAL (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
                AND (scheduled_at, id) >= (lane.since, lane.since_id)
            ORDER BY scheduled_at, id
            LIMIT 1
        ) AS head
    ) AS due_at,
    (
        SELECT min(CASE WHEN lane.is_parted THEN (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
            ORDER BY scheduled_at
            LIMIT 1
        ) ELSE (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
            ORDER BY scheduled_at
            LIMIT 1
        ) END)
        FROM redrive_special_lanes AS lane
        WHERE (:queues IS NULL OR lane.queue = ANY (:queues))
            AND (:excluded IS NULL OR lane.queue <> ALL (:excluded)) AND (:tasks IS NULL OR lane.task = ANY (:tasks))
    ) AS special_at
FROM redrive_clock AS clock
