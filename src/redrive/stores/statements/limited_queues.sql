-- The statements of operations/limited_queues.py.

-- name: queues_due
-- Return for each limited queue that is not paused when its earliest ready job after an instant is due.
-- Sorted by name, because a claim locks the queues in that order.
-- postgres
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
-- sqlite
SELECT lane.queue AS name, min(CASE WHEN lane.is_parted THEN (
    SELECT scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND queue = lane.queue AND priority = lane.priority
        AND task = lane.task
        AND scheduled_at > :after
    ORDER BY scheduled_at
    LIMIT 1
) ELSE (
    SELECT scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority AND task = lane.task
        AND scheduled_at > :after
    ORDER BY scheduled_at
    LIMIT 1
) END) AS due_at
FROM redrive_special_lanes AS lane
WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
    AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
    AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
GROUP BY lane.queue
ORDER BY lane.queue

-- name: queue_lock
-- Return the settings of one queue, and block other claims and changes until the transaction ends.
-- SQLite has one writer at a time and needs no lock.
-- both
SELECT
    name, paused_at, paused_by, concurrency, per_partition, rate_count, rate_for, partition_rate_count,
    partition_rate_for, ordered, aging_for, turn, changed_at
FROM redrive_queues
WHERE name = :name
FOR UPDATE

-- name: queue_held
-- Return the number of running handlers of one limited queue by partition, including those with attempts that have
-- ended.
-- Under the lock of the queue.
-- both
SELECT partition, count(*) AS held
FROM (
    SELECT partition FROM redrive_jobs WHERE slot = :queue
    UNION ALL
    SELECT partition FROM redrive_unstopped AS other
    WHERE queue = :queue
        AND EXISTS (SELECT FROM redrive_workers AS worker WHERE worker.id = other.worker_id AND worker.stopped_at IS NULL)
) AS running
GROUP BY partition

-- name: queue_starts
-- Return how many attempts of one queue have started after an instant, and when the first of them did.
-- Under the lock of the queue.
-- both
SELECT count(*) AS count, min(started_at) AS first_at
FROM redrive_starts
WHERE queue = :queue AND started_at > :after::timestamptz

-- name: partition_starts
-- Return how many attempts of each partition of one queue have started after an instant, and when the first of them did.
-- Under the lock of the queue.
-- both
SELECT partition, count(*) AS count, min(started_at) AS first_at
FROM redrive_starts
WHERE queue = :queue AND started_at > :after::timestamptz AND partition IS NOT NULL
GROUP BY partition

-- name: queue_window
-- Return the first due jobs of one limited queue, of each priority and task, without a partition and with one.
-- Under the lock of the queue; in an ordered queue each has the first job of its line, or 0.
-- postgres
WITH RECURSIVE loose AS (
    (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = :queue::text
        ORDER BY priority, task LIMIT 1
    )
    UNION ALL
    SELECT following.priority, following.task
    FROM loose
    CROSS JOIN LATERAL (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = :queue
            AND (priority, task) > (loose.priority, loose.task)
        ORDER BY priority, task LIMIT 1
    ) AS following
),
parted AS (
    (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue::text
        ORDER BY priority, task LIMIT 1
    )
    UNION ALL
    SELECT following.priority, following.task
    FROM parted
    CROSS JOIN LATERAL (
        SELECT priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
            AND (priority, task) > (parted.priority, parted.task)
        ORDER BY priority, task LIMIT 1
    ) AS following
)
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL::bigint AS head_id
FROM loose
CROSS JOIN LATERAL (
    SELECT id, partition, priority, scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NULL AND queue = :queue AND priority = loose.priority
        AND task = loose.task AND scheduled_at <= :now::timestamptz
    ORDER BY scheduled_at, id
    LIMIT :count::bigint
) AS job
WHERE :tasks::text[] IS NULL OR loose.task = ANY (:tasks)
UNION ALL
-- A handler that has not stopped blocks its line: then no job is the first.
SELECT job.id, job.partition, job.priority, job.scheduled_at, CASE WHEN :ordered::boolean AND EXISTS (
    SELECT FROM redrive_unstopped AS other
    JOIN redrive_workers AS worker ON worker.id = other.worker_id AND worker.stopped_at IS NULL
    WHERE other.queue = :queue AND other.partition = job.partition
) THEN 0 WHEN :ordered THEN (
    SELECT line.id FROM redrive_jobs AS line
    WHERE line.queue = :queue AND line.partition = job.partition AND line.partition IS NOT NULL AND (
        line.state = 'ready' OR line.state = 'running' OR line.state = 'waiting'
        OR (line.state = 'dead' AND line.caught_at IS NULL AND line.skipped_at IS NULL)
    )
    ORDER BY line.id
    LIMIT 1
) END AS head_id
FROM parted
CROSS JOIN LATERAL (
    SELECT id, partition, priority, scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND priority = parted.priority
        AND task = parted.task AND scheduled_at <= :now
    ORDER BY scheduled_at, id
    LIMIT :window::bigint
) AS job
WHERE :tasks IS NULL OR parted.task = ANY (:tasks)
-- sqlite
WITH RECURSIVE loose (id, priority, task) AS (
    SELECT first.id, first.priority, first.task
    FROM (
        SELECT id, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NULL AND queue = :queue
        ORDER BY priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.priority, job.task
    FROM loose
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = :queue
                AND priority = loose.priority AND task > loose.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = :queue AND priority > loose.priority
            ORDER BY priority, task LIMIT 1
        )
    )
),
parted (id, priority, task) AS (
    SELECT first.id, first.priority, first.task
    FROM (
        SELECT id, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
        ORDER BY priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.priority, job.task
    FROM parted
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
                AND priority = parted.priority AND task > parted.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND priority > parted.priority
            ORDER BY priority, task LIMIT 1
        )
    )
)
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL AS head_id
FROM loose,
    json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NULL AND queue = :queue AND priority = loose.priority
                AND task = loose.task AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :count
        ) AS first
    )) AS candidate
JOIN redrive_jobs AS job ON job.id = candidate.value
WHERE :tasks IS NULL OR loose.task IN (SELECT value FROM json_each(:tasks))
UNION ALL
-- A handler that has not stopped blocks its line: then no job is the first.
SELECT job.id, job.partition, job.priority, job.scheduled_at, CASE WHEN :ordered AND EXISTS (
    SELECT 1 FROM redrive_unstopped AS other
    JOIN redrive_workers AS worker ON worker.id = other.worker_id AND worker.stopped_at IS NULL
    WHERE other.queue = :queue AND other.partition = job.partition
) THEN 0 WHEN :ordered THEN (
    SELECT line.id FROM redrive_jobs AS line
    WHERE line.queue = :queue AND line.partition = job.partition AND line.partition IS NOT NULL AND (
        line.state = 'ready' OR line.state = 'running' OR line.state = 'waiting'
        OR (line.state = 'dead' AND line.caught_at IS NULL AND line.skipped_at IS NULL)
    )
    ORDER BY line.id
    LIMIT 1
) END AS head_id
FROM parted,
    json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND priority = parted.priority
                AND task = parted.task AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :window
        ) AS first
    )) AS candidate
JOIN redrive_jobs AS job ON job.id = candidate.value
WHERE :tasks IS NULL OR parted.task IN (SELECT value FROM json_each(:tasks))

-- name: queue_shares
-- Return the shares (partition, priority, task) of one queue after a partition, each with its due time.
-- Under the lock of the queue, if more is due than a claim reads first; a loose scan with as many probes.
-- postgres
WITH RECURSIVE share AS (
    (
        SELECT partition, priority, task, scheduled_at FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue::text AND partition > :after::text
        ORDER BY partition, priority, task, scheduled_at LIMIT 1
    )
    UNION ALL
    SELECT following.partition, following.priority, following.task, following.scheduled_at
    FROM share
    CROSS JOIN LATERAL (
        SELECT partition, priority, task, scheduled_at FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
            AND (partition, priority, task) > (share.partition, share.priority, share.task)
        ORDER BY partition, priority, task, scheduled_at LIMIT 1
    ) AS following
)
SELECT partition, priority, task, scheduled_at AS due_at FROM share
LIMIT :count::bigint
-- sqlite
WITH RECURSIVE share (id, partition, priority, task) AS (
    SELECT first.id, first.partition, first.priority, first.task
    FROM (
        SELECT id, partition, priority, task FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > :after
        ORDER BY partition, priority, task LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.id, job.partition, job.priority, job.task
    FROM share
    JOIN redrive_jobs AS job ON job.id = coalesce(
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
                AND partition = share.partition AND priority = share.priority AND task > share.task
            ORDER BY task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
                AND partition = share.partition AND priority > share.priority
            ORDER BY priority, task LIMIT 1
        ),
        (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > share.partition
            ORDER BY partition, priority, task LIMIT 1
        )
    )
    LIMIT :count
)
SELECT share.partition, share.priority, share.task, (
    SELECT scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
        AND partition = share.partition AND priority = share.priority AND task = share.task
    ORDER BY scheduled_at
    LIMIT 1
) AS due_at
FROM share

-- name: queue_rows
-- Return the due jobs of these shares of one queue, as many of each share as requested.
-- Under the lock of the queue; the three lists belong together.
-- postgres
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL::bigint AS head_id
FROM unnest(:partitions::text[], :priorities::bigint[], :tasks::text[]) AS share (partition, priority, task)
CROSS JOIN LATERAL (
    SELECT id, partition, priority, scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue::text
        AND partition = share.partition AND priority = share.priority AND task = share.task
        AND scheduled_at <= :now::timestamptz
    ORDER BY scheduled_at, id
    LIMIT :count::bigint
) AS job
-- sqlite
SELECT job.id, job.partition, job.priority, job.scheduled_at, NULL AS head_id
FROM json_each(:partitions) AS share,
    json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue
                AND partition = share.value AND priority = :priorities ->> share.key AND task = :tasks ->> share.key
                AND scheduled_at <= :now
            ORDER BY scheduled_at, id
            LIMIT :count
        ) AS first
    )) AS candidate
JOIN redrive_jobs AS job ON job.id = candidate.value

-- name: queue_lines
-- Return the lines of an ordered queue that wait, after a partition, each with its first job in whatever state.
-- Under the lock of the queue, if more is due than a claim reads first; a loose scan with as many probes.
-- postgres
WITH RECURSIVE line AS (
    (
        SELECT partition FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue::text AND partition > :after::text
        ORDER BY partition LIMIT 1
    )
    UNION ALL
    SELECT following.partition
    FROM line
    CROSS JOIN LATERAL (
        SELECT partition FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > line.partition
        ORDER BY partition LIMIT 1
    ) AS following
)
SELECT head.id, head.partition, head.priority, head.task, head.scheduled_at,
    -- A handler that has not stopped blocks its line as if its attempt had not ended.
    CASE WHEN EXISTS (
        SELECT FROM redrive_unstopped AS other
        JOIN redrive_workers AS worker ON worker.id = other.worker_id AND worker.stopped_at IS NULL
        WHERE other.queue = :queue AND other.partition = head.partition
    ) THEN 'running' ELSE head.state END AS state
FROM (SELECT partition FROM line LIMIT :count::bigint) AS waiting
CROSS JOIN LATERAL (
    SELECT first.id, first.partition, first.priority, first.task, first.scheduled_at, first.state
    FROM redrive_jobs AS first
    WHERE first.queue = :queue AND first.partition = waiting.partition AND first.partition IS NOT NULL AND (
        first.state = 'ready' OR first.state = 'running' OR first.state = 'waiting'
        OR (first.state = 'dead' AND first.caught_at IS NULL AND first.skipped_at IS NULL)
    )
    ORDER BY first.id
    LIMIT 1
) AS head
-- sqlite
WITH RECURSIVE line (partition) AS (
    SELECT (
        SELECT partition FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > :after
        ORDER BY partition LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT partition FROM redrive_jobs
        WHERE state = 'ready' AND partition IS NOT NULL AND queue = :queue AND partition > line.partition
        ORDER BY partition LIMIT 1
    )
    FROM line
    WHERE line.partition IS NOT NULL
    LIMIT :count
)
SELECT head.id, head.partition, head.priority, head.task, head.scheduled_at,
    -- A handler that has not stopped blocks its line as if its attempt had not ended.
    CASE WHEN EXISTS (
        SELECT 1 FROM redrive_unstopped AS other
        JOIN redrive_workers AS worker ON worker.id = other.worker_id AND worker.stopped_at IS NULL
        WHERE other.queue = :queue AND other.partition = head.partition
    ) THEN 'running' ELSE head.state END AS state
FROM line
JOIN redrive_jobs AS head ON head.id = (
    SELECT first.id FROM redrive_jobs AS first
    WHERE first.queue = :queue AND first.partition = line.partition AND first.partition IS NOT NULL AND (
        first.state = 'ready' OR first.state = 'running' OR first.state = 'waiting'
        OR (first.state = 'dead' AND first.caught_at IS NULL AND first.skipped_at IS NULL)
    )
    ORDER BY first.id
    LIMIT 1
)

-- name: queue_turn
-- Write which partition of a queue was served last.
-- A queue of jobs with partitions may not have a row yet.
-- both
INSERT INTO redrive_queues (name, turn) VALUES (:name, :turn)
ON CONFLICT (name) DO UPDATE SET turn = excluded.turn

-- name: starts_drop
-- Delete the starts of a queue that no rate window reaches any more.
-- Under the lock of the queue.
-- both
DELETE FROM redrive_starts WHERE queue = :queue AND started_at <= :before

-- name: starts_put
-- Insert starts of a queue with a rate.
-- Under the lock of the queue.
-- postgres
INSERT INTO redrive_starts (queue, lease_id, started_at, partition)
SELECT * FROM unnest(:queue::text[], :lease_id::bigint[], :started_at::timestamptz[], :partition::text[])
-- sqlite
INSERT INTO redrive_starts (queue, lease_id, started_at, partition)
VALUES (:queue, :lease_id, :started_at, :partition)
