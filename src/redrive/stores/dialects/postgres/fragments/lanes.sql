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
    -- cursors is probed by itself, so that the entries of these lanes are not scanned; the empty name is the end. A
    -- range is probed part by part, the last one first, with bounds on single columns: on PostgreSQL 15, a comparison of
    -- rows such as (a, b) > (x, y) ends a backward scan only where a changes, and so reads the lane behind the range.
    SELECT
        coalesce(job.queue, above.queue) AS queue, coalesce(job.priority, above.priority) AS priority,
        coalesce(job.task, above.task) AS task
    FROM (
        SELECT top.queue, top.priority, top.task, coalesce(
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue > top.queue
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue = top.queue AND priority > top.priority
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL
                    AND queue = top.queue AND priority = top.priority AND task > top.task
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            )
        ) AS id
        FROM (SELECT queue, priority, task FROM cursor_of ORDER BY queue DESC, priority DESC, task DESC LIMIT 1) AS top
    ) AS above
    LEFT JOIN LATERAL (SELECT queue, priority, task FROM redrive_jobs WHERE id = above.id OFFSET 0) AS job ON true
    UNION ALL
    SELECT
        coalesce(job.queue, below.queue), coalesce(job.priority, below.priority), coalesce(job.task, below.task)
    FROM (
        SELECT bound.queue, bound.priority, bound.task, coalesce(
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL
                    AND queue = found.queue AND priority = found.priority AND task < found.task
                    AND task > CASE
                        WHEN (bound.queue, bound.priority) = (found.queue, found.priority) THEN bound.task ELSE ''
                    END
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue = found.queue AND priority < found.priority
                    AND priority >= CASE
                        WHEN bound.queue = found.queue THEN bound.priority + 1 ELSE -9223372036854775808
                    END
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue < found.queue AND queue > bound.queue
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND bound.queue <> found.queue
                    AND queue = bound.queue AND priority > bound.priority
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            ),
            (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL
                    AND (bound.queue, bound.priority) <> (found.queue, found.priority)
                    AND queue = bound.queue AND priority = bound.priority AND task > bound.task
                ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
            )
        ) AS id
        FROM found
        CROSS JOIN LATERAL (
            SELECT queue, priority, task FROM cursor_of
            WHERE (queue, priority, task) < (found.queue, found.priority, found.task)
            ORDER BY queue DESC, priority DESC, task DESC LIMIT 1
        ) AS bound
    ) AS below
    LEFT JOIN LATERAL (SELECT queue, priority, task FROM redrive_jobs WHERE id = below.id OFFSET 0) AS job ON true
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
