-- The lanes of plain queues that have ready jobs, each with the position at which a scan of the lane starts.
-- Included in claim and next_due.
WITH RECURSIVE cursor_of AS MATERIALIZED (
    SELECT queue COLLATE "C" AS queue, priority, task COLLATE "C" AS task, scheduled_at, id
    FROM unnest(
        :cursor_queues::text[], :cursor_priorities::bigint[], :cursor_tasks::text[], :cursor_times::timestamptz[],
        :cursor_ids::bigint[]
    ) AS given (queue, priority, task, scheduled_at, id)
    UNION ALL
    SELECT '', 0, '', '-infinity', 0
),
found AS (
    -- A loose scan, as in the view redrive_lanes, from the last lane to the first. The range between two lanes with
    -- cursors is probed by itself, so that the dead entries of these lanes are not scanned; the empty name is the end.
    (
        SELECT queue, priority, task
        FROM (
            (
                SELECT job.queue, job.priority, job.task FROM redrive_jobs AS job
                WHERE job.state = 'ready' AND job.partition IS NULL AND (job.queue, job.priority, job.task) > (
                    SELECT queue, priority, task FROM cursor_of ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
                )
                ORDER BY job.queue DESC, job.priority DESC, job.task DESC LIMIT 1
            )
            UNION ALL
            SELECT queue, priority, task FROM cursor_of
        ) AS last
        ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
    )
    UNION ALL
    SELECT before.queue, before.priority, before.task
    FROM found
    CROSS JOIN LATERAL (
        SELECT queue, priority, task FROM cursor_of
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
        coalesce(cursor_of.scheduled_at, '-infinity') AS since, coalesce(cursor_of.id, 0) AS since_id
    FROM found
    LEFT JOIN cursor_of
        ON cursor_of.queue = found.queue AND cursor_of.priority = found.priority AND cursor_of.task = found.task
    WHERE found.queue <> '' AND (:queues::text[] IS NULL OR found.queue = ANY (:queues))
        AND (:excluded::text[] IS NULL OR found.queue <> ALL (:excluded))
        AND (:tasks::text[] IS NULL OR found.task = ANY (:tasks))
        AND NOT EXISTS (SELECT FROM redrive_queues WHERE name = found.queue)
)
