-- Insert jobs that differ only in their ids, each ready at its due time.
-- Called by enqueue, for many calls of a task at once.
-- transaction: last
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, salt
)
SELECT
    id, :task::text, :queue::text, :priority::bigint, 'ready', :hold::text, :policy::text, :partition::text,
    :enqueued_at::timestamptz, :scheduled_at::timestamptz, :latest_at::timestamptz, :timeout_for::interval, :salt::bigint
FROM unnest(:ids::bigint[]) AS given (id)
