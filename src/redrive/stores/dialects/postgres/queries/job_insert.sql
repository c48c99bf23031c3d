-- Insert jobs, each ready at its due time.
-- Called by enqueue, and by settle for catch jobs.
-- transaction: last
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, key, key_until, parent_id, enqueued_at, scheduled_at,
    latest_at, expires_at, timeout_for, origin, salt
)
SELECT
    id, task, queue, priority, 'ready', hold, policy, partition, key, key_until, parent_id, enqueued_at, scheduled_at,
    latest_at, expires_at, timeout_for, origin, salt
FROM unnest(
    :id::bigint[], :task::text[], :queue::text[], :priority::bigint[], :hold::text[], :policy::text[],
    :partition::text[], :key::text[], :key_until::text[], :parent_id::bigint[], :enqueued_at::timestamptz[],
    :scheduled_at::timestamptz[], :latest_at::timestamptz[], :expires_at::timestamptz[], :timeout_for::interval[], :origin::text[],
    :salt::bigint[]
) AS given (
    id, task, queue, priority, hold, policy, partition, key, key_until, parent_id, enqueued_at, scheduled_at, latest_at,
    expires_at, timeout_for, origin, salt
)
