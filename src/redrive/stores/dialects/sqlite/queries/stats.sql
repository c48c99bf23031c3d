-- Count jobs by state, each up to a limit; of the ended ones only those among the newest jobs, except dead ones.
-- Called by stats. It reads partial indexes and the end of the table. The due jobs of a lane come first in the index.
SELECT
    -- Retries may fill the limit of all later jobs; then those that are held for another reason are counted, too.
    due, max(later - retrying, CASE WHEN later < :most THEN 0 ELSE held END) AS scheduled, retrying, running, waiting,
    succeeded, dead, caught, cancelled
FROM (
    SELECT
    (
        SELECT count(*) FROM (
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN redrive_jobs AS job
            WHERE NOT lane.is_parted AND (:task IS NULL OR lane.task = :task)
                AND job.state = 'ready' AND job.partition IS NULL
                AND job.queue = lane.queue AND job.priority = lane.priority AND job.task = lane.task
                AND job.scheduled_at <= :now AND job.id > :after_id
            UNION ALL
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN redrive_jobs AS job
            WHERE lane.is_parted AND (:task IS NULL OR lane.task = :task)
                AND job.state = 'ready' AND job.partition IS NOT NULL
                AND job.queue = lane.queue AND job.priority = lane.priority AND job.task = lane.task
                AND job.scheduled_at <= :now AND job.id > :after_id
            LIMIT :most
        ) AS found
    ) AS due,
    (
        SELECT count(*) FROM (
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN redrive_jobs AS job
            WHERE NOT lane.is_parted AND (:task IS NULL OR lane.task = :task)
                AND job.state = 'ready' AND job.partition IS NULL
                AND job.queue = lane.queue AND job.priority = lane.priority AND job.task = lane.task
                AND job.scheduled_at > :now AND job.id > :after_id
            UNION ALL
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN redrive_jobs AS job
            WHERE lane.is_parted AND (:task IS NULL OR lane.task = :task)
                AND job.state = 'ready' AND job.partition IS NOT NULL
                AND job.queue = lane.queue AND job.priority = lane.priority AND job.task = lane.task
                AND job.scheduled_at > :now AND job.id > :after_id
            LIMIT :most
        ) AS found
    ) AS later,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE hold = 'retry' AND scheduled_at > :now AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY scheduled_at
            LIMIT :most
        ) AS found
    ) AS retrying,
    (
        SELECT count(*) FROM (
            SELECT job.id
            FROM json_each(:holds) AS given
            CROSS JOIN redrive_jobs AS job
            WHERE job.hold = given.value AND job.scheduled_at > :now AND job.id > :after_id
                AND (:task IS NULL OR job.task = :task)
            LIMIT :most
        ) AS found
    ) AS held,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'running' AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY worker_id
            LIMIT :most
        ) AS found
    ) AS running,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'waiting' AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY scheduled_at
            LIMIT :most
        ) AS found
    ) AS waiting,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'dead' AND caught_at IS NULL AND (origin IS NULL OR origin NOT LIKE 'refresh:%') AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY id DESC
            LIMIT :most
        ) AS found
    ) AS dead,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE caught_at IS NOT NULL AND (origin IS NULL OR origin NOT LIKE 'refresh:%') AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY id DESC
            LIMIT :most
        ) AS found
    ) AS caught
) AS counted
CROSS JOIN (
    SELECT
        count(*) FILTER (WHERE state = 'succeeded' AND (:task IS NULL OR task = :task)) AS succeeded,
        count(*) FILTER (WHERE state = 'cancelled' AND (:task IS NULL OR task = :task)) AS cancelled
    FROM (SELECT state, task FROM redrive_jobs WHERE id > :after_id ORDER BY id DESC LIMIT :most) AS newest
) AS ended
