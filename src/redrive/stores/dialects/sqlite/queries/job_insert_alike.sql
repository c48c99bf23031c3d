-- Insert jobs that differ only in their ids, each ready at its due time.
-- Called by enqueue, for many calls of a task at once.
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, salt
)
SELECT
    value, :task, :queue, :priority, 'ready', :hold, :policy, :partition, :enqueued_at, :scheduled_at, :latest_at,
    :timeout_for, :salt
FROM json_each(:ids)
