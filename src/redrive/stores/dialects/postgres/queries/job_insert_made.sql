-- Insert jobs that differ only in their ids and origins, each ready at its due time.
-- Called when schedules create many jobs at once.
-- transaction: last
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, origin,
    salt
)
SELECT
    key::bigint, :task::text, :queue::text, :priority::bigint, 'ready', :hold::text, :policy::text, :partition::text,
    :enqueued_at::timestamptz, :scheduled_at::timestamptz, :latest_at::timestamptz, :timeout_for::interval,
    value, :salt::bigint
FROM json_each_text(:made::json)
