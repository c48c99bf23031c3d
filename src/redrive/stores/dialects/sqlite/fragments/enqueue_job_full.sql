INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, expires_at, timeout_for, salt
)
SELECT
    value + 1, :task, :queue, :priority, 'ready',
    CASE WHEN coalesce(:due_at, :now + :delay) > :now THEN 'delay' END,
    :policy, :partition, :now, max(:now, coalesce(:due_at, :now + :delay)), coalesce(:expires_at, :now + :expires_for),
    :timeout_for, :salt
FROM redrive_sequences
WHERE name = 'job'
    AND (:partition IS NOT NULL OR NOT EXISTS (SELECT 1 FROM redrive_queues WHERE name = :queue AND ordered))
