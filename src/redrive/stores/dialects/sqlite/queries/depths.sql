-- Return the number of jobs of each queue by state, and since when the first of them is due.
-- Called by depths; it reads partial indexes only, and counts a bounded number of jobs and queues.
WITH RECURSIVE loose (queue, number) AS (
    SELECT (
        SELECT queue FROM redrive_jobs WHERE state = 'ready' AND partition IS NULL ORDER BY queue LIMIT 1
    ), 1
    UNION ALL
    SELECT (
        SELECT queue FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue > loose.queue
        ORDER BY queue LIMIT 1
    ), loose.number + 1
    FROM loose
    WHERE loose.queue IS NOT NULL AND loose.number < :widest
),
parted (queue, number) AS (
    SELECT (
        SELECT queue FROM redrive_jobs WHERE state = 'ready' AND partition IS NOT NULL ORDER BY queue LIMIT 1
    ), 1
    UNION ALL
    SELECT (
        SELECT queue FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue > parted.queue
        ORDER BY queue LIMIT 1
    ), parted.number + 1
    FROM parted
    WHERE parted.queue IS NOT NULL AND parted.number < :widest
),
counted AS (
    SELECT loose.queue, (
        SELECT json_array(count(*), count(*) FILTER (WHERE scheduled_at <= :now), min(scheduled_at))
        FROM (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = loose.queue
            ORDER BY priority, task, scheduled_at
            LIMIT :most
        ) AS head
    ) AS numbers
    FROM loose
    WHERE loose.queue IS NOT NULL
    UNION ALL
    SELECT parted.queue, (
        SELECT json_array(count(*), count(*) FILTER (WHERE scheduled_at <= :now), min(scheduled_at))
        FROM (
            SELECT scheduled_at FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = parted.queue
            ORDER BY priority, task, scheduled_at
            LIMIT :most
        ) AS head
    ) AS numbers
    FROM parted
    WHERE parted.queue IS NOT NULL
),
ready AS (
    SELECT
        queue, json_extract(numbers, '$[0]') AS ready, json_extract(numbers, '$[1]') AS due,
        json_extract(numbers, '$[2]') AS first_at
    FROM counted
)
SELECT queue, 'due' AS standing, sum(due) AS jobs,
    min(CASE WHEN first_at <= :now THEN first_at END) AS oldest_at
FROM ready
GROUP BY queue
UNION ALL
SELECT queue, 'later' AS standing, sum(ready - due) AS jobs, NULL AS oldest_at
FROM ready
GROUP BY queue
UNION ALL
SELECT queue, 'running' AS standing, count(*) AS jobs, NULL AS oldest_at
FROM (SELECT queue FROM redrive_jobs WHERE state = 'running' LIMIT :most) AS running
GROUP BY queue
UNION ALL
SELECT queue, 'waiting' AS standing, count(*) AS jobs, NULL AS oldest_at
FROM (SELECT queue FROM redrive_jobs WHERE state = 'waiting' LIMIT :most) AS waiting
GROUP BY queue
UNION ALL
SELECT queue, 'dead' AS standing, count(*) AS jobs, NULL AS oldest_at
FROM (SELECT queue FROM redrive_jobs WHERE state = 'dead' AND caught_at IS NULL LIMIT :most) AS dead
GROUP BY queue
