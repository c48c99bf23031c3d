-- Return the number of jobs of each queue by state, whether it may be more, and since when the first of them is due.
-- Called by depths, examine and note_depths. A lane has its due jobs first, so that its later ones are not read for them.
WITH counted AS MATERIALIZED (
    SELECT queue, CASE WHEN is_parted THEN (
        SELECT json_array(count(*), min(scheduled_at))
        FROM (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL
                AND queue = lane.queue AND priority = lane.priority AND task = lane.task AND scheduled_at <= :now
            LIMIT :most
        ) AS job
    ) ELSE (
        SELECT json_array(count(*), min(scheduled_at))
        FROM (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL
                AND queue = lane.queue AND priority = lane.priority AND task = lane.task AND scheduled_at <= :now
            LIMIT :most
        ) AS job
    ) END AS due, CASE WHEN is_parted THEN (
        SELECT count(*)
        FROM (
            SELECT 1 FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL
                AND queue = lane.queue AND priority = lane.priority AND task = lane.task AND scheduled_at > :now
            LIMIT :most
        ) AS job
    ) ELSE (
        SELECT count(*)
        FROM (
            SELECT 1 FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL
                AND queue = lane.queue AND priority = lane.priority AND task = lane.task AND scheduled_at > :now
            LIMIT :most
        ) AS job
    ) END AS later
    FROM redrive_ready_lanes AS lane
)
SELECT queue, 'due' AS standing, sum(json_extract(due, '$[0]')) AS jobs,
    max(json_extract(due, '$[0]') >= :most) AS is_capped, min(json_extract(due, '$[1]')) AS oldest_at
FROM counted
GROUP BY queue
UNION ALL
SELECT queue, 'later' AS standing, sum(later) AS jobs, max(later >= :most) AS is_capped, NULL AS oldest_at
FROM counted
GROUP BY queue
UNION ALL
SELECT queue, 'running' AS standing, count(*) AS jobs, sum(count(*)) OVER () >= :most AS is_capped, NULL AS oldest_at
FROM (SELECT queue FROM redrive_jobs WHERE state = 'running' LIMIT :most) AS running
GROUP BY queue
UNION ALL
SELECT queue, 'waiting' AS standing, count(*) AS jobs, sum(count(*)) OVER () >= :most AS is_capped, NULL AS oldest_at
FROM (SELECT queue FROM redrive_jobs WHERE state = 'waiting' LIMIT :most) AS waiting
GROUP BY queue
UNION ALL
SELECT queue, 'dead' AS standing, count(*) AS jobs, sum(count(*)) OVER () >= :most AS is_capped, NULL AS oldest_at
FROM (SELECT queue FROM redrive_jobs WHERE state = 'dead' AND caught_at IS NULL LIMIT :most) AS dead
GROUP BY queue
