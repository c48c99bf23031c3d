-- Return the number of jobs of each queue by state, whether it may be more, and since when the first of them is due.
-- Called by depths, examine and note_depths. A lane has its due jobs first, so that its later ones are not read for them.
WITH counted AS MATERIALIZED (
    SELECT lane.queue, due.jobs AS due, due.first_at, later.jobs AS later
    FROM redrive_ready_lanes AS lane
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(scheduled_at) AS first_at
        FROM (
            (
                SELECT scheduled_at FROM redrive_jobs
                WHERE NOT lane.is_parted AND state = 'ready' AND partition IS NULL
                    AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                    AND scheduled_at <= :now::timestamptz
                ORDER BY scheduled_at, id
                LIMIT :most::bigint
            )
            UNION ALL
            (
                SELECT scheduled_at FROM redrive_jobs
                WHERE lane.is_parted AND state = 'ready' AND partition IS NOT NULL
                    AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                    AND scheduled_at <= :now
                ORDER BY scheduled_at, id
                LIMIT :most::bigint
            )
        ) AS job
    ) AS due
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs
        FROM (
            (
                SELECT id FROM redrive_jobs
                WHERE NOT lane.is_parted AND state = 'ready' AND partition IS NULL
                    AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                    AND scheduled_at > :now
                ORDER BY scheduled_at, id
                LIMIT :most::bigint
            )
            UNION ALL
            (
                SELECT id FROM redrive_jobs
                WHERE lane.is_parted AND state = 'ready' AND partition IS NOT NULL
                    AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                    AND scheduled_at > :now
                ORDER BY scheduled_at, id
                LIMIT :most::bigint
            )
        ) AS job
    ) AS later
)
SELECT queue, 'due' AS standing, sum(due)::bigint AS jobs, bool_or(due >= :most) AS is_capped,
    min(first_at) AS oldest_at
FROM counted
GROUP BY queue
UNION ALL
SELECT queue, 'later' AS standing, sum(later)::bigint AS jobs, bool_or(later >= :most) AS is_capped,
    NULL::timestamptz AS oldest_at
FROM counted
GROUP BY queue
UNION ALL
SELECT queue, 'running' AS standing, count(*) AS jobs, sum(count(*)) OVER () >= :most::bigint AS is_capped,
    NULL::timestamptz AS oldest_at
FROM (SELECT queue FROM redrive_jobs WHERE state = 'running' LIMIT :most::bigint) AS running
GROUP BY queue
UNION ALL
SELECT queue, 'waiting' AS standing, count(*) AS jobs, sum(count(*)) OVER () >= :most::bigint AS is_capped,
    NULL::timestamptz AS oldest_at
FROM (SELECT queue FROM redrive_jobs WHERE state = 'waiting' LIMIT :most::bigint) AS waiting
GROUP BY queue
UNION ALL
SELECT queue, 'dead' AS standing, count(*) AS jobs, sum(count(*)) OVER () >= :most::bigint AS is_capped,
    NULL::timestamptz AS oldest_at
FROM (SELECT queue FROM redrive_jobs WHERE state = 'dead' AND caught_at IS NULL LIMIT :most::bigint) AS dead
GROUP BY queue
