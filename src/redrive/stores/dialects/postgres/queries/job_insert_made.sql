-- Inserts jobs that differ in nothing but their ids and what they are for, each ready at its due time.
-- Called where schedules make many jobs at once.
INSERT INTO redrive_jobs (
    id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, latest_at, timeout_for, origin,
    salt
)
SELECT
    key::bigint, :task::text, :queue::text, :priority::bigint, 'ready', :hold::text, :policy::text, :partition::text,
    :enqueued_at::timestamptz, :scheduled_at::timestamptz, :latest_at::timestamptz, :timeout_for::interval,
    value, :salt::bigint
FROM json_each_text(:made::json)
