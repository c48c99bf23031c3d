-- Insert jobs that differ only in their ids and origins, each ready at its due time.
-- Called when schedules create many jobs at once.
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, origin,
    salt
)
SELECT
    CAST(key AS INTEGER), :task, :queue, :priority, 'ready', :hold, :policy, :partition, :enqueued_at, :scheduled_at, :latest_at,
    :timeout_for, value, :salt
FROM json_each(:made)
