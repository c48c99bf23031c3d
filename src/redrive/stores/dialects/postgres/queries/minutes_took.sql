-- Return the number of ended attempts of each queue and task by the bucket of the time that they took.
-- Called by throughput.
SELECT queue, task, each.place - 1 AS place, sum(each.jobs)::bigint AS jobs
FROM redrive_minutes
CROSS JOIN LATERAL unnest(took) WITH ORDINALITY AS each (jobs, place)
WHERE at >= :since::timestamptz AND (:queue::text IS NULL OR queue = :queue) AND each.jobs > 0
GROUP BY queue, task, each.place
