-- Answers the instant, as the clock does, and when the earliest ready jobs of plain and of special queues are due.
-- Called by claim, so that an idle worker knows how long it may rest; one question, because it asks so often.
WITH RECURSIVE floor AS MATERIALIZED (
    SELECT queue COLLATE "C" AS queue, priority, task COLLATE "C" AS task, scheduled_at, id
    FROM unnest(
        :cursor_queues::text[], :cursor_priorities::bigint[], :cursor_tasks::text[], :cursor_times::timestamptz[],
        :cursor_ids::bigint[]
    ) AS given (queue, priority, task, scheduled_at, id)
    UNION ALL
    SELECT '', 0, '', '-infinity', 0
),
found AS (
    -- A loose scan, as the view redrive_lanes, from the last lane to the first. But what stands between two lanes with
    -- floors is asked for by itself, so that their dead entries are not walked; the empty name is the end.
    (
        SELECT queue, priority, task
        FROM (
            (
                SELECT job.queue, job.priority, job.task FROM redrive_jobs AS job
                WHERE job.state = 'ready' AND job.partition IS NULL AND (job.queue, job.priority, job.task) > (
                    SELECT queue, priority, task FROM floor ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
                )
                ORDER BY job.queue DESC, job.priority DESC, job.task DESC LIMIT 1
            )
            UNION ALL
            SELECT queue, priority, task FROM floor
        ) AS last
        ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
    )
    UNION ALL
    SELECT before.queue, before.priority, before.task
    FROM found
    CROSS JOIN LATERAL (
        SELECT queue, priority, task FROM floor
        WHERE (queue, priority, task) < (found.queue, found.priority, found.task)
        ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
    ) AS bound
    CROSS JOIN LATERAL (
        (
            SELECT queue, priority, task FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL
                AND (queue, priority, task) < (found.queue, found.priority, found.task)
                AND (queue, priority, task) > (bound.queue, bound.priority, bound.task)
            ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
        )
        UNION ALL
        SELECT bound.queue, bound.priority, bound.task
        ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
    ) AS before
),
lane AS MATERIALIZED (
    SELECT found.queue, found.priority, found.task,
        coalesce(floor.scheduled_at, '-infinity') AS since, coalesce(floor.id, 0) AS since_id
    FROM found
    LEFT JOIN floor
        ON floor.queue = found.queue AND floor.priority = found.priority AND floor.task = found.task
    WHERE found.queue <> '' AND (:queues::text[] IS NULL OR found.queue = ANY (:queues))
        AND (:tasks::text[] IS NULL OR found.task = ANY (:tasks))
        AND NOT EXISTS (SELECT FROM redrive_queues WHERE name = found.queue)
)
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
        WHERE (:queues IS NULL OR lane.queue = ANY (:queues)) AND (:tasks IS NULL OR lane.task = ANY (:tasks))
    ) AS special_at
FROM redrive_clock AS clock
