-- Return the sums of ended attempts by span, queue and task; rows of all resolutions are added up.
-- Called by throughput.
SELECT
    date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00') AS at, queue, task,
    sum(succeeded)::bigint AS succeeded,
    sum(retried)::bigint AS retried,
    sum(died)::bigint AS died,
    sum(snoozed)::bigint AS snoozed,
    sum(lost)::bigint AS lost,
    sum(cancelled)::bigint AS cancelled
FROM redrive_minutes
WHERE at >= :since::timestamptz AND (:queue::text IS NULL OR queue = :queue)
GROUP BY 1, queue, task
ORDER BY 1, queue, task
