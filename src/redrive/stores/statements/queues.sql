-- The statements of operations/queues.py.

-- name: queues_select
-- Return the settings of these queues, or of every queue that has any, by name.
-- transaction: none
-- both
SELECT
    name, paused_at, paused_by, concurrency, per_partition, rate_count, rate_for, partition_rate_count,
    partition_rate_for, ordered, aging_for, turn, changed_at
FROM redrive_queues
WHERE :names::text[] IS NULL OR name = ANY (:names)
ORDER BY name

-- name: queue_put
-- Write all settings of one queue except the partition that was served last.
-- Under the lock of the queue.
-- both
INSERT INTO redrive_queues (
    name, paused_at, paused_by, concurrency, per_partition, rate_count, rate_for, partition_rate_count,
    partition_rate_for, ordered, aging_for, changed_at, set_at
) VALUES (
    :name, :paused_at, :paused_by, :concurrency, :per_partition, :rate_count, :rate_for, :partition_rate_count,
    :partition_rate_for, :ordered, :aging_for,
    :changed_at, :set_at
)
ON CONFLICT (name) DO UPDATE SET
    paused_at = excluded.paused_at,
    paused_by = excluded.paused_by,
    concurrency = excluded.concurrency,
    per_partition = excluded.per_partition,
    rate_count = excluded.rate_count,
    rate_for = excluded.rate_for,
    partition_rate_count = excluded.partition_rate_count,
    partition_rate_for = excluded.partition_rate_for,
    ordered = excluded.ordered,
    aging_for = excluded.aging_for,
    changed_at = excluded.changed_at,
    set_at = excluded.set_at

-- name: slots_put
-- Let the running attempts of a queue occupy slots.
-- A limit has been set, and running attempts count.
-- both
UPDATE redrive_jobs SET slot = :queue WHERE state = 'running' AND queue = :queue AND slot IS NULL

-- name: queue_holders
-- Return the jobs that occupy slots of these limited queues, oldest first; at most a number for each queue.
-- postgres
SELECT given.queue, running.id, running.partition
FROM unnest(:queues::text[]) AS given (queue)
CROSS JOIN LATERAL (
    SELECT id, partition FROM redrive_jobs WHERE slot = given.queue
    UNION ALL
    SELECT job_id AS id, partition FROM redrive_unstopped AS other
    WHERE queue = given.queue
        AND EXISTS (SELECT FROM redrive_workers AS worker WHERE worker.id = other.worker_id AND worker.stopped_at IS NULL)
    ORDER BY id
    LIMIT :count::bigint
) AS running
ORDER BY running.id
-- sqlite
SELECT queue, id, partition
FROM (
    SELECT queue, id, partition, row_number() OVER (PARTITION BY queue ORDER BY id) AS place
    FROM (
        SELECT slot AS queue, id, partition FROM redrive_jobs WHERE slot IN (SELECT value FROM json_each(:queues))
        UNION ALL
        SELECT queue, job_id AS id, partition FROM redrive_unstopped AS other
        WHERE queue IN (SELECT value FROM json_each(:queues))
            AND EXISTS (SELECT 1 FROM redrive_workers AS worker WHERE worker.id = other.worker_id AND worker.stopped_at IS NULL)
    )
)
WHERE place <= :count
ORDER BY id

-- name: queue_present
-- Return the jobs that a queue runs, or all of them, with their workers; those that hold a place of a limited queue, also
-- of handlers that have not stopped; and those that a queue runs next.
-- The order is that of a claim; aging, partitions in rotation and limits, which change it, are not regarded.
-- postgres
SELECT 'running' AS kind, id, queue, task, attempt, claimed_at AS at, worker_id, worker
FROM (
    SELECT job.id, job.queue, job.task, job.attempt, job.claimed_at, job.worker_id, worker.name AS worker
    FROM redrive_jobs AS job
    LEFT JOIN redrive_workers AS worker ON worker.id = job.worker_id
    WHERE job.state = 'running' AND (:queue::text IS NULL OR job.queue = :queue)
    ORDER BY job.claimed_at, job.id
    LIMIT :running::bigint
) AS running
UNION ALL
SELECT 'holder', id, :queue, task, attempt, NULL, NULL, NULL
FROM (
    SELECT id, task, attempt FROM redrive_jobs WHERE slot = :queue
    UNION ALL
    SELECT job.id, job.task, job.attempt
    FROM redrive_unstopped AS other
    JOIN redrive_jobs AS job ON job.id = other.job_id
    WHERE other.queue = :queue
        AND EXISTS (SELECT FROM redrive_workers AS worker WHERE worker.id = other.worker_id AND worker.stopped_at IS NULL)
    ORDER BY id
    LIMIT :running
) AS holder
UNION ALL
SELECT 'next', id, :queue, task, attempt, scheduled_at, NULL, NULL
FROM (
    SELECT head.id, head.task, head.attempt, head.scheduled_at
    FROM redrive_ready_lanes AS lane
    CROSS JOIN LATERAL (
        (
            SELECT id, task, attempt, scheduled_at FROM redrive_jobs
            WHERE NOT lane.is_parted AND state = 'ready' AND partition IS NULL
                AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                AND scheduled_at <= :now::timestamptz
            ORDER BY scheduled_at, id
            LIMIT :next::bigint
        )
        UNION ALL
        (
            SELECT id, task, attempt, scheduled_at FROM redrive_jobs
            WHERE lane.is_parted AND state = 'ready' AND partition IS NOT NULL
                AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :next
        )
    ) AS head
    WHERE lane.queue = :queue
    ORDER BY lane.priority, head.scheduled_at, head.id
    LIMIT :next
) AS ahead
-- sqlite
SELECT 'running' AS kind, id, queue, task, attempt, claimed_at AS at, worker_id, worker
FROM (
    SELECT job.id, job.queue, job.task, job.attempt, job.claimed_at, job.worker_id, worker.name AS worker
    FROM redrive_jobs AS job
    LEFT JOIN redrive_workers AS worker ON worker.id = job.worker_id
    WHERE job.state = 'running' AND (:queue IS NULL OR job.queue = :queue)
    ORDER BY job.claimed_at, job.id
    LIMIT :running
) AS running
UNION ALL
SELECT 'holder', id, :queue, task, attempt, NULL, NULL, NULL
FROM (
    SELECT id, task, attempt FROM redrive_jobs WHERE slot = :queue
    UNION ALL
    SELECT job.id, job.task, job.attempt
    FROM redrive_unstopped AS other
    JOIN redrive_jobs AS job ON job.id = other.job_id
    WHERE other.queue = :queue
        AND EXISTS (SELECT 1 FROM redrive_workers AS worker WHERE worker.id = other.worker_id AND worker.stopped_at IS NULL)
    ORDER BY id
    LIMIT :running
) AS holder
UNION ALL
SELECT 'next', id, :queue, task, attempt, scheduled_at, NULL, NULL
FROM (
    SELECT job.id, job.task, job.attempt, job.scheduled_at
    FROM redrive_ready_lanes AS lane
    JOIN redrive_jobs AS job ON job.id IN (
        SELECT id FROM (
            SELECT id FROM redrive_jobs
            WHERE NOT lane.is_parted AND state = 'ready' AND partition IS NULL
                AND queue = lane.queue AND priority = lane.priority AND task = lane.task AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :next
        )
        UNION ALL
        SELECT id FROM (
            SELECT id FROM redrive_jobs
            WHERE lane.is_parted AND state = 'ready' AND partition IS NOT NULL
                AND queue = lane.queue AND priority = lane.priority AND task = lane.task AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :next
        )
    )
    WHERE lane.queue = :queue
    ORDER BY lane.priority, job.scheduled_at, job.id
    LIMIT :next
) AS ahead

-- name: job_circumstances
-- Return the present instant, and for each of these jobs what keeps it from running or has ended it.
-- postgres
SELECT given.id, clock.now, head.id AS head_id, head.state AS head_state, attempt.error_type,
    child.id AS catch_id, child.task AS catch_task, child.state AS catch_state,
    (
        SELECT CASE WHEN count(*) >= paced.partition_rate_count THEN min(started.started_at) + paced.partition_rate_for END
        FROM redrive_starts AS started
        WHERE started.queue = paced.name AND started.partition = job.partition
            AND started.started_at > clock.now - paced.partition_rate_for
    ) AS partition_next_at,
    -- A worker starts the jobs of a claim by priority, due time and id. A feeder takes no slot.
    coalesce(worker.concurrency <= (
        SELECT count(*) FROM redrive_jobs AS other
        WHERE other.worker_id = worker.id AND other.state = 'running'
            AND (other.origin IS NULL OR other.origin NOT LIKE 'topic:%@%' OR other.origin LIKE '%#%')
            AND (other.claimed_at, other.priority, other.scheduled_at, other.id)
                < (job.claimed_at, job.priority, job.scheduled_at, job.id)
    ), false) AS is_ahead
FROM unnest(:ids::bigint[]) AS given (id)
CROSS JOIN (SELECT coalesce(:now::timestamptz, now) AS now FROM redrive_clock) AS clock
LEFT JOIN redrive_jobs AS job ON job.id = given.id
LEFT JOIN redrive_queues AS queue
    ON job.state = 'ready' AND job.partition IS NOT NULL AND queue.name = job.queue AND queue.ordered
LEFT JOIN redrive_queues AS paced
    ON job.state = 'ready' AND job.partition IS NOT NULL AND paced.name = job.queue
    AND paced.partition_rate_count IS NOT NULL
LEFT JOIN redrive_jobs AS head ON head.id = (
    SELECT first.id FROM redrive_jobs AS first
    WHERE first.queue = queue.name AND first.partition = job.partition AND first.partition IS NOT NULL AND (
        first.state = 'ready' OR first.state = 'running' OR first.state = 'waiting'
        OR (first.state = 'dead' AND first.caught_at IS NULL AND first.skipped_at IS NULL)
    )
    ORDER BY first.id
    LIMIT 1
)
LEFT JOIN redrive_attempts AS attempt
    ON job.state = 'dead' AND attempt.job_id = job.id
    AND attempt.lease_id = (SELECT max(lease_id) FROM redrive_attempts WHERE job_id = job.id)
LEFT JOIN redrive_jobs AS child
    ON job.state = 'dead' AND child.id = (SELECT max(id) FROM redrive_jobs WHERE parent_id = job.id)
LEFT JOIN redrive_workers AS worker ON job.state = 'running' AND worker.id = job.worker_id
-- sqlite
SELECT given.value AS id, clock.now, head.id AS head_id, head.state AS head_state, attempt.error_type,
    child.id AS catch_id, child.task AS catch_task, child.state AS catch_state,
    (
        SELECT CASE WHEN count(*) >= paced.partition_rate_count THEN min(started.started_at) + paced.partition_rate_for END
        FROM redrive_starts AS started
        WHERE started.queue = paced.name AND started.partition = job.partition
            AND started.started_at > clock.now - paced.partition_rate_for
    ) AS partition_next_at,
    -- A worker starts the jobs of a claim by priority, due time and id. A feeder takes no slot.
    coalesce(worker.concurrency <= (
        SELECT count(*) FROM redrive_jobs AS other
        WHERE other.worker_id = worker.id AND other.state = 'running'
            AND (other.origin IS NULL OR other.origin NOT LIKE 'topic:%@%' OR other.origin LIKE '%#%')
            AND (other.claimed_at, other.priority, other.scheduled_at, other.id)
                < (job.claimed_at, job.priority, job.scheduled_at, job.id)
    ), false) AS is_ahead
FROM json_each(:ids) AS given
CROSS JOIN (SELECT coalesce(:now, now) AS now FROM redrive_clock) AS clock
LEFT JOIN redrive_jobs AS job ON job.id = given.value
LEFT JOIN redrive_queues AS queue
    ON job.state = 'ready' AND job.partition IS NOT NULL AND queue.name = job.queue AND queue.ordered
LEFT JOIN redrive_queues AS paced
    ON job.state = 'ready' AND job.partition IS NOT NULL AND paced.name = job.queue
    AND paced.partition_rate_count IS NOT NULL
LEFT JOIN redrive_jobs AS head ON head.id = (
    SELECT first.id FROM redrive_jobs AS first
    WHERE first.queue = queue.name AND first.partition = job.partition AND first.partition IS NOT NULL AND (
        first.state = 'ready' OR first.state = 'running' OR first.state = 'waiting'
        OR (first.state = 'dead' AND first.caught_at IS NULL AND first.skipped_at IS NULL)
    )
    ORDER BY first.id
    LIMIT 1
)
LEFT JOIN redrive_attempts AS attempt
    ON job.state = 'dead' AND attempt.job_id = job.id
    AND attempt.lease_id = (SELECT max(lease_id) FROM redrive_attempts WHERE job_id = job.id)
LEFT JOIN redrive_jobs AS child
    ON job.state = 'dead' AND child.id = (SELECT max(id) FROM redrive_jobs WHERE parent_id = job.id)
LEFT JOIN redrive_workers AS worker ON job.state = 'running' AND worker.id = job.worker_id

-- name: queue_limits
-- Return the settings of these queues, or of all, with the number and the first of the starts within the span of the
-- rate.
-- both
SELECT
    name, paused_at, paused_by, concurrency, per_partition, rate_count, rate_for, partition_rate_count,
    partition_rate_for, ordered, aging_for, turn, changed_at,
    (
        SELECT count(*) FROM redrive_starts AS started
        WHERE started.queue = queue.name AND started.started_at > :now::timestamptz - queue.rate_for
    ) AS begun,
    (
        SELECT min(started_at) FROM redrive_starts AS started
        WHERE started.queue = queue.name AND started.started_at > :now::timestamptz - queue.rate_for
    ) AS first_at
FROM redrive_queues AS queue
WHERE :names::text[] IS NULL OR queue.name = ANY (:names::text[])

-- name: depths
-- Return the number of jobs of each queue by state, whether it may be more, and since when the first of them is due.
-- A lane has its due jobs first, so that its later ones are not read for them.
-- postgres
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
SELECT queue, standing, count(*) AS jobs, sum(count(*)) OVER () >= :most::bigint AS is_capped,
    NULL::timestamptz AS oldest_at
FROM (
    SELECT queue, CASE WHEN skipped_at > finished_at THEN 'skipped' ELSE 'dead' END AS standing FROM redrive_jobs
    WHERE state = 'dead' AND caught_at IS NULL
    LIMIT :most::bigint
) AS dead
GROUP BY queue, standing
-- sqlite
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
SELECT queue, standing, count(*) AS jobs, sum(count(*)) OVER () >= :most AS is_capped, NULL AS oldest_at
FROM (
    SELECT queue, CASE WHEN skipped_at > finished_at THEN 'skipped' ELSE 'dead' END AS standing FROM redrive_jobs
    WHERE state = 'dead' AND caught_at IS NULL
    LIMIT :most
) AS dead
GROUP BY queue, standing
