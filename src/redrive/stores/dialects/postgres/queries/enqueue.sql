-- Insert one job without keys that is due at once, and return its id and the instant; no row if it is refused.
-- Called by enqueue, for most jobs.
-- transaction: last
WITH new AS MATERIALIZED (
    -- Refused are a job without partition of an ordered queue, and any job on another database than that with the id
    -- :uid. No workers are notified if :channel is NULL.
    SELECT nextval('redrive_job_ids') AS id, coalesce(:now::timestamptz, clock.now) AS now
    FROM redrive_clock AS clock
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
job AS (
    INSERT INTO redrive_jobs (
        id, task, queue, priority, state, policy, partition, enqueued_at, scheduled_at, timeout_for, salt
    )
    SELECT
        id, :task::text, :queue, :priority::bigint, 'ready', :policy, :partition, now, now, :timeout_for::interval,
        :salt::bigint
    FROM new
)
SELECT id, now, CASE WHEN :channel::text IS NOT NULL THEN pg_notify(:channel, '') END AS notified FROM new
