-- Return the queues in which more attempts have started than their limits allow, since these were set.
-- Called by check. An attempt counts if it occupies a slot, and if it runs in the queue without one.
WITH held AS (
    SELECT id, slot AS queue, partition, claimed_at FROM redrive_jobs WHERE slot IS NOT NULL
    UNION
    SELECT id, queue, partition, claimed_at FROM redrive_jobs WHERE state = 'running'
)
SELECT min(job.id) AS id,
    'queue ' || queue.name || ' runs ' || count(*) || ' jobs at once, but its limit is ' || queue.concurrency AS text,
    'limits' AS rule
FROM redrive_queues AS queue
JOIN held AS job ON job.queue = queue.name AND job.claimed_at > queue.set_at
WHERE queue.concurrency IS NOT NULL
GROUP BY queue.name, queue.concurrency
HAVING count(*) > queue.concurrency
UNION ALL
SELECT min(job.id),
    'queue ' || queue.name || ' runs ' || count(*) || ' jobs of partition ' || job.partition
    || ' at once, but its limit for each is ' || queue.per_partition,
    'limits'
FROM redrive_queues AS queue
JOIN held AS job ON job.queue = queue.name AND job.claimed_at > queue.set_at
WHERE queue.per_partition IS NOT NULL AND job.partition IS NOT NULL
GROUP BY queue.name, queue.per_partition, job.partition
HAVING count(*) > queue.per_partition
LIMIT :count
