-- Give the worker the due jobs of plain queues that come first by priority, due time and id, under new leases.
-- Called by claim; each returned row is one new attempt. Jobs of tasks that the worker does not have are left alone.
WITH first_of_all AS (
    SELECT job.id
    FROM redrive_lanes AS lane,
        json_each((
            SELECT json_group_array(head.id)
            FROM (
                SELECT id FROM redrive_jobs
                WHERE state = 'ready' AND partition IS NULL AND queue = lane.queue AND priority = lane.priority
                    AND task = lane.task AND scheduled_at <= :now
                ORDER BY scheduled_at, id
                LIMIT :count
            ) AS head
        )) AS candidate
    JOIN redrive_jobs AS job ON job.id = candidate.value
    WHERE (:queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues)))
        AND (:excluded IS NULL OR lane.queue NOT IN (SELECT value FROM json_each(:excluded)))
        AND (:tasks IS NULL OR lane.task IN (SELECT value FROM json_each(:tasks)))
        AND EXISTS (SELECT 1 FROM redrive_workers WHERE id = :worker_id AND stopped_at IS NULL)
    ORDER BY job.priority, job.scheduled_at, job.id
    LIMIT :count
)
UPDATE redrive_jobs SET
    state = 'running',
    hold = NULL,
    -- The block of numbers was taken by the statement before. The low 20 bits are random, so that a restored database
    -- repeats its numbers but not its leases.
    lease_id = (((SELECT value FROM redrive_sequences WHERE name = 'lease') - :count + 1 + due.key) << 20)
        | (:salt & 1048575),
    worker_id = :worker_id,
    attempt = attempt + 1,
    started_at = coalesce(started_at, :now),
    claimed_at = :now
FROM json_each((SELECT json_group_array(id) FROM first_of_all)) AS due
WHERE redrive_jobs.id = due.value
    -- Expired jobs stay, for the duty that cancels them. The row is read already.
    AND (expires_at IS NULL OR expires_at > :now OR started_at IS NOT NULL)
RETURNING
-- include claimed.sql
