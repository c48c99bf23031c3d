-- Return the largest number of due jobs, and the longest time since the first was due, of each queue in each span.
-- Called by throughput.
SELECT
    date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00') AS at, queue, max(due) AS due,
    max(oldest_for) AS oldest_for, bool_or(due_capped) AS due_capped
FROM redrive_depths
WHERE at >= :since::timestamptz AND (:queue::text IS NULL OR queue = :queue)
GROUP BY 1, queue
ORDER BY 1, queue
