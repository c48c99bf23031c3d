-- Return the largest number of due jobs, and the longest time since the first was due, of each queue in each span.
-- Called by throughput.
SELECT at - at % :width AS at, queue, max(due) AS due, max(oldest_for) AS oldest_for,
    max(due_capped) AS due_capped
FROM redrive_depths
WHERE at >= :since AND (:queue IS NULL OR queue = :queue)
GROUP BY 1, queue
ORDER BY 1, queue
