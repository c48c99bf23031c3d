INSERT INTO redrive_jobs (
    id, task, queue, priority, state, policy, partition, enqueued_at, scheduled_at, timeout_for, salt
)
SELECT value + 1, :task, :queue, :priority, 'ready', :policy, :partition, :now, :now, :timeout_for, :salt
FROM redrive_sequences
WHERE name = 'job'
    AND (:partition IS NOT NULL OR NOT EXISTS (SELECT 1 FROM redrive_queues WHERE name = :queue AND ordered))
