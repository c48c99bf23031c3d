-- Return the number of ended attempts of each queue and task by the bucket of the time that they took.
-- Called by throughput.
SELECT queue, task, each.key AS place, sum(each.value) AS jobs
FROM redrive_minutes, json_each(redrive_minutes.took) AS each
WHERE at >= :since AND (:queue IS NULL OR queue = :queue) AND each.value > 0
GROUP BY queue, task, each.key
