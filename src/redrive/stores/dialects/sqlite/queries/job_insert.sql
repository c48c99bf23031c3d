-- Insert jobs, each ready at its due time.
-- Called by enqueue, and by settle for catch jobs.
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, key, key_until, parent_id, enqueued_at,
    scheduled_at, latest_at, expires_at, timeout_for, origin, salt
) VALUES (
    :id, :task, :queue, :priority, 'ready', :hold, :policy, :partition, :key, :key_until, :parent_id, :enqueued_at,
    :scheduled_at, :latest_at, :expires_at, :timeout_for, :origin, :salt
)
