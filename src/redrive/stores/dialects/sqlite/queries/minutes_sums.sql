-- Return the sums of ended attempts by span, queue and task; rows of all resolutions are added up.
-- Called by throughput.
SELECT
    at - at % :width AS at, queue, task,
    sum(succeeded) AS succeeded,
    sum(retried) AS retried,
    sum(died) AS died,
    sum(snoozed) AS snoozed,
    sum(lost) AS lost,
    sum(cancelled) AS cancelled
FROM redrive_minutes
WHERE at >= :since AND (:queue IS NULL OR queue = :queue)
GROUP BY 1, queue, task
ORDER BY 1, queue, task
