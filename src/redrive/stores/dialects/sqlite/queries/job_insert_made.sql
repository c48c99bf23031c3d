-- Inserts jobs that differ in nothing but their ids and what they are for, each ready at its due time.
-- Called where schedules make many jobs at once.
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, origin,
    salt
)
SELECT
    CAST(key AS INTEGER), :task, :queue, :priority, 'ready', :hold, :policy, :partition, :enqueued_at, :scheduled_at, :latest_at,
    :timeout_for, value, :salt
FROM json_each(:made)
