-- Return the queues that are not paused with the tasks of their ready jobs.
-- Called by examine; it reads one row of each lane, however long it is.
SELECT queue, task FROM redrive_lanes
UNION
SELECT queue, task FROM redrive_special_lanes
ORDER BY queue, task
LIMIT :count::bigint
