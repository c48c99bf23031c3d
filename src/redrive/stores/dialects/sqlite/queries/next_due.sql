-- Return the instant, as clock does, and the due times of the earliest ready jobs of plain and of limited queues.
-- Called by claim, to find how long an idle worker may rest; one statement, because it runs often.
SELECT
    coalesce(:now, (SELECT now FROM redrive_clock)) AS now,
    (
        SELECT min((
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                AND task = lane.task
            ORDER BY scheduled_at
            LIMIT 1
        ))
        FROM redrive_lanes AS lane
        WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
            AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
            AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
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
        WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
            AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
            AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
    ) AS special_at
