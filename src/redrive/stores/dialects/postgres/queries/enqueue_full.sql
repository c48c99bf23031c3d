-- Insert one job without keys, with all of its options, and return its id and the instant; no row if it is refused.
-- Called by enqueue, for a job with a due time, an expiry, tags or a trace.
-- transaction: last
WITH new AS MATERIALIZED (
    SELECT
        nextval('redrive_job_ids') AS id,
        at.now,
        CASE WHEN :due_at::timestamptz IS NULL THEN at.now + :delay::interval ELSE greatest(at.now, :due_at) END AS due_at
    FROM (SELECT coalesce(:now::timestamptz, clock.now) AS now FROM redrive_clock AS clock OFFSET 0) AS at
    WHERE (
        :partition::text IS NOT NULL
        OR NOT EXISTS (SELECT FROM redrive_queues WHERE name = :queue::text AND ordered)
    ) AND (:uid::text IS NULL OR EXISTS (SELECT FROM redrive_meta WHERE key = 'uid' AND value = :uid))
),
policy AS (
    INSERT INTO redrive_policies (digest, document)
    SELECT :policy::text, :document::text
    FROM new
    WHERE NOT EXISTS (
        SELECT FROM redrive_policies AS known WHERE known.digest = :policy AND known.retired_at IS NULL
    )
),
argument AS (
    INSERT INTO redrive_payloads (job_id, payload) SELECT id, :payload::bytea FROM new
),
tag AS (
    INSERT INTO redrive_tags (tag, job_id) SELECT tag, id FROM new CROSS JOIN unnest(:tags::text[]) AS tag
),
trace AS (
    INSERT INTO redrive_traces (job_id, trace) SELECT id, :trace::text FROM new WHERE :trace IS NOT NULL
),
job AS (
    INSERT INTO redrive_jobs (
        id, task, queue, priority, state, hold, policy, partition, enqueued_at, scheduled_at, expires_at, timeout_for,
        salt
    )
    SELECT
        id, :task::text, :queue, :priority::bigint, 'ready', CASE WHEN due_at > now THEN 'delay' END, :policy,
        :partition, now, due_at, coalesce(:expires_at::timestamptz, now + :expires_for::interval),
        :timeout_for::interval, :salt::bigint
    FROM new
)
SELECT id, now, CASE WHEN :channel::text IS NOT NULL THEN pg_notify(:channel, '') END AS notified FROM new
