-- The statements of operations/topics/subscriptions.py.

-- name: subscription_put
-- Write a subscription as the code declares it; its pause, its shards and its cursor stay.
-- both
INSERT INTO redrive_subscriptions (topic, name, ordering, dead, dead_topic, types, shards, declared_at)
VALUES (
    :topic::text, :name::text, :ordering::text, :dead::text, :dead_topic::text, :types::text[], :shards::integer,
    :now::timestamptz
)
ON CONFLICT (topic, name) DO UPDATE SET
    ordering = excluded.ordering, dead = excluded.dead, dead_topic = excluded.dead_topic, types = excluded.types

-- name: subscriptions_ready
-- Return the subscriptions that have shards, each with a feeder that has not ended.
-- transaction: none
-- both
SELECT topic, name, ordering, dead, types, shards, declared_at, paused_at, behind, reshard, dead_topic
FROM redrive_subscriptions AS subscription
WHERE EXISTS (
    SELECT FROM redrive_shards AS shard
    WHERE shard.topic = subscription.topic AND shard.subscription = subscription.name
) AND NOT EXISTS (
    SELECT FROM redrive_shards AS shard
    WHERE shard.topic = subscription.topic AND shard.subscription = subscription.name
        -- As a value, so that each job is found by its id: a join might read all jobs.
        AND ((SELECT state FROM redrive_jobs WHERE id = shard.job_id) IN ('ready', 'running', 'waiting')) IS NOT TRUE
)

-- name: shards_lock
-- Lock the shards of a subscription, and return them.
-- postgres
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen::text AS seen,
    shard.until::text AS until, shard.final::text AS final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why
FROM redrive_shards AS shard
WHERE topic = :topic::text AND subscription = :subscription::text
ORDER BY shard
FOR UPDATE
-- sqlite
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen,
    shard.until, shard.final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why
FROM redrive_shards AS shard
WHERE topic = :topic AND subscription = :subscription
ORDER BY shard

-- name: subscription_lock
-- Lock a subscription and return it.
-- both
SELECT topic, name, ordering, dead, types, shards, declared_at, paused_at, behind, reshard, dead_topic FROM redrive_subscriptions WHERE topic = :topic::text AND name = :name::text FOR UPDATE

-- name: shard_insert
-- Insert shards of a subscription, each with its feeder.
-- postgres
INSERT INTO redrive_shards (topic, subscription, shard, job_id, seen, until, at_id)
SELECT topic, subscription, shard, job_id, seen::pg_snapshot, until::pg_snapshot, at_id
FROM unnest(
    :topic::text[], :subscription::text[], :shard::integer[], :job_id::bigint[], :seen::text[], :until::text[],
    :at_id::bigint[]
) AS given (topic, subscription, shard, job_id, seen, until, at_id)
-- sqlite
INSERT INTO redrive_shards (topic, subscription, shard, job_id, seen, until, at_id)
VALUES (:topic, :subscription, :shard, :job_id, :seen, :until, :at_id)

-- name: shard_feeder
-- Give a shard another feeder, because the old one has ended.
-- postgres
UPDATE redrive_shards AS shard SET job_id = given.job_id
FROM unnest(:topic::text[], :subscription::text[], :shard::integer[], :job_id::bigint[])
    AS given (topic, subscription, shard, job_id)
WHERE shard.topic = given.topic AND shard.subscription = given.subscription AND shard.shard = given.shard
-- sqlite
UPDATE redrive_shards SET job_id = :job_id
WHERE topic = :topic AND subscription = :subscription AND shard = :shard

-- name: event_near
-- Return the first id of a topic from an instant on, by halves: a topic may have millions of events before it.
-- It reads one event of each half.
-- postgres
WITH RECURSIVE half (low, high) AS (
    SELECT
        coalesce((SELECT id FROM redrive_events WHERE topic = :topic::text ORDER BY id LIMIT 1), 0),
        coalesce((SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id DESC LIMIT 1), 0)
    UNION ALL
    SELECT
        CASE WHEN event.at < :at::timestamptz THEN least(event.id + 1, half.high) ELSE half.low END,
        CASE WHEN event.at < :at THEN half.high ELSE (half.low + half.high) / 2 END
    FROM half
    CROSS JOIN LATERAL (
        SELECT id, at FROM redrive_events
        WHERE topic = :topic AND id >= (half.low + half.high) / 2
        ORDER BY id LIMIT 1
    ) AS event
    WHERE half.low < half.high
)
SELECT max(low) AS id FROM half
-- sqlite
WITH RECURSIVE half (low, high) AS (
    SELECT
        coalesce((SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id LIMIT 1), 0),
        coalesce((SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id DESC LIMIT 1), 0)
    UNION ALL
    SELECT
        iif(event.at < :at, min(event.id + 1, half.high), half.low),
        iif(event.at < :at, half.high, (half.low + half.high) / 2)
    FROM half
    JOIN redrive_events AS event ON event.topic = :topic AND event.id = (
        SELECT id FROM redrive_events
        WHERE topic = :topic AND id >= (half.low + half.high) / 2
        ORDER BY id LIMIT 1
    )
    WHERE half.low < half.high
)
SELECT max(low) AS id FROM half

-- name: shard_move
-- Put the cursors of a subscription at another position; what its feeders have read is void.
-- postgres
UPDATE redrive_shards SET
    epoch = epoch + 1, seen = :seen::text::pg_snapshot, until = :until::text::pg_snapshot, at_id = :at_id::bigint,
    done_id = 0, unfinished = '{}', ahead_id = :at_id, stuck_id = NULL, stuck_why = NULL
WHERE topic = :topic::text AND subscription = :subscription::text
-- sqlite
UPDATE redrive_shards SET
    epoch = epoch + 1, seen = :seen, until = :until, at_id = :at_id, done_id = 0, unfinished = '[]',
    ahead_id = :at_id, stuck_id = NULL, stuck_why = NULL
WHERE topic = :topic AND subscription = :subscription

-- name: done_forget
-- Delete the rows of ended deliveries of a subscription.
-- both
DELETE FROM redrive_done WHERE topic = :topic::text AND subscription = :subscription::text

-- name: subscription_get
-- Return subscriptions by topic and name; NULL stands for any.
-- both
SELECT topic, name, ordering, dead, types, shards, declared_at, paused_at, behind, reshard, dead_topic FROM redrive_subscriptions
WHERE (:topic::text IS NULL OR topic = :topic) AND (:name::text IS NULL OR name = :name)
ORDER BY topic, name

-- fragment: events_far
-- Unread events in the window of redrive_shards AS shard, which redrive_subscriptions AS own takes.
-- postgres
    FROM redrive_events AS event
    WHERE shard.until IS NOT NULL AND event.topic = shard.topic AND event.id > shard.at_id
        AND NOT pg_visible_in_snapshot(event.xid, shard.seen)
        AND pg_visible_in_snapshot(event.xid, shard.until)
        AND (own.types IS NULL OR event.type = ANY (own.types))
        AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
-- sqlite
    FROM redrive_events AS event
    WHERE event.topic = shard.topic AND shard.until IS NOT NULL
        AND event.id > max(shard.at_id, CAST(shard.seen AS INTEGER)) AND event.id <= CAST(shard.until AS INTEGER)
        AND (own.types IS NULL OR event.type IN (SELECT value FROM json_each(own.types)))
        AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)

-- fragment: events_near
-- Events after the window of redrive_shards AS shard, which redrive_subscriptions AS own takes.
-- postgres
    FROM (
        (
            SELECT id, at, type, slot FROM redrive_events AS event
            WHERE event.topic = shard.topic
                AND event.xid >= pg_snapshot_xmax(coalesce(shard.until, shard.seen))
        )
        UNION ALL
        (
            SELECT id, at, type, slot FROM redrive_events AS event
            WHERE event.topic = shard.topic
                AND event.xid = ANY (ARRAY(SELECT pg_snapshot_xip(coalesce(shard.until, shard.seen))))
        )
    ) AS event
    WHERE (own.types IS NULL OR event.type = ANY (own.types))
        AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
-- sqlite
    FROM redrive_events AS event
    WHERE event.topic = shard.topic AND event.id > CAST(coalesce(shard.until, shard.seen) AS INTEGER)
        AND (own.types IS NULL OR event.type IN (SELECT value FROM json_each(own.types)))
        AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)

-- name: move_effect
-- Count what a move of a subscription to an event would skip, repeat and cancel, each up to a limit, over its
-- shards.
-- NULL stands for the end. A shard has not read what comes after its window (near) and within it (far).
-- postgres
SELECT
    coalesce(max(shard.epoch), 0) AS epoch,
    coalesce(sum(near.events + far.events), 0)::bigint AS skipped,
    coalesce(sum(done.events), 0)::bigint AS repeated,
    (
        SELECT count(*) FROM (
            SELECT FROM redrive_jobs AS job
            WHERE job.queue = :topic::text || '.' || :name::text AND job.task = :topic || '.' || :name
                AND job.partition IS NOT NULL
                AND (job.state = 'ready' OR job.state = 'running' OR job.state = 'waiting')
            LIMIT :count::bigint
        ) AS open
    ) AS cancelled
FROM redrive_shards AS shard
JOIN redrive_subscriptions AS own ON own.topic = shard.topic AND own.name = shard.subscription
CROSS JOIN LATERAL (
    SELECT count(*) AS events FROM (
        SELECT
-- include events_near
            AND event.id < coalesce(:first_id::bigint, 9223372036854775807)
        LIMIT :count
    ) AS ahead
) AS near
CROSS JOIN LATERAL (
    SELECT count(*) AS events FROM (
        SELECT
-- include events_far
            AND event.id < coalesce(:first_id, 9223372036854775807)
        ORDER BY event.id
        LIMIT :count
    ) AS ahead
) AS far
-- Done events come before the others, except near the cursor, so it reads a bounded number of events.
CROSS JOIN LATERAL (
    SELECT count(*) AS events FROM (
        SELECT event.id, event.xid FROM redrive_events AS event
        WHERE event.topic = shard.topic AND event.id >= :first_id
            AND (own.types IS NULL OR event.type = ANY (own.types))
            AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
        ORDER BY event.id
        LIMIT 2 * :count
    ) AS read
    WHERE pg_visible_in_snapshot(read.xid, shard.seen)
        OR (shard.until IS NOT NULL AND read.id <= shard.at_id AND pg_visible_in_snapshot(read.xid, shard.until))
) AS done
WHERE shard.topic = :topic AND shard.subscription = :name
-- sqlite
SELECT
    coalesce(max(shard.epoch), 0) AS epoch,
    coalesce(sum((
        SELECT count(*) FROM (
            SELECT 1
-- include events_near
                AND event.id < coalesce(:first_id, 9223372036854775807)
            LIMIT :count
        ) AS near
    ) + (
        SELECT count(*) FROM (
            SELECT 1
-- include events_far
                AND event.id < coalesce(:first_id, 9223372036854775807)
            LIMIT :count
        ) AS far
    )), 0) AS skipped,
    coalesce(sum((
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_events AS event
            WHERE event.topic = shard.topic AND event.id >= :first_id
                AND event.id <= max(CAST(shard.seen AS INTEGER), iif(shard.until IS NULL, 0, shard.at_id))
                AND (own.types IS NULL OR event.type IN (SELECT value FROM json_each(own.types)))
                AND (own.shards = 1 OR coalesce(event.slot, event.id) % own.shards = shard.shard)
            LIMIT :count
        ) AS done
    )), 0) AS repeated,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.queue = :topic || '.' || :name AND job.task = :topic || '.' || :name
                AND job.partition IS NOT NULL
                AND (job.state = 'ready' OR job.state = 'running' OR job.state = 'waiting')
            LIMIT :count
        ) AS open
    ) AS cancelled
FROM redrive_shards AS shard
JOIN redrive_subscriptions AS own ON own.topic = shard.topic AND own.name = shard.subscription
WHERE shard.topic = :topic AND shard.subscription = :name

-- name: subscription_change
-- Write the pause, the number of shards and the events behind of a locked subscription.
-- both
UPDATE redrive_subscriptions SET
    paused_at = :paused_at::timestamptz, shards = :shards::integer, reshard = :reshard::integer,
    behind = :behind::bigint
WHERE topic = :topic::text AND name = :name::text

-- name: deliveries_of
-- Return the deliveries of a subscription that have not ended, or are dead and hold up their line, oldest first.
-- The first of a line is the one that holds it.
-- both
SELECT
    id, origin, partition, state, hold, attempt, scheduled_at, error, note,
    EXISTS (SELECT 1 FROM redrive_tags WHERE tag = 'out of order' AND job_id = job.id) AS out_of_order
FROM redrive_jobs AS job
WHERE queue = :queue::text AND task = :task::text AND partition IS NOT NULL AND (
        state = 'ready' OR state = 'running' OR state = 'waiting'
        OR (state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL)
    )
ORDER BY id
LIMIT :count::bigint

-- name: skip
-- Unblock the line that a dead job blocks, and return the job, unless an operator has skipped it before.
-- postgres
UPDATE redrive_jobs SET skipped_at = greatest(:now::timestamptz, finished_at + interval '1 microsecond')
WHERE id = :id::bigint AND state = 'dead' AND caught_at IS NULL AND (skipped_at > finished_at) IS NOT TRUE
RETURNING id
-- sqlite
UPDATE redrive_jobs SET skipped_at = max(:now, finished_at + 1)
WHERE id = :id AND state = 'dead' AND caught_at IS NULL AND (skipped_at > finished_at) IS NOT TRUE
RETURNING id

-- name: delivery_end
-- End a delivery as dead, with its last error, and let the events behind it pass.
-- postgres
UPDATE redrive_jobs SET
    state = 'dead', hold = NULL, slot = NULL, lease_id = NULL, worker_id = NULL, finished_at = :now::timestamptz,
    skipped_at = :now + interval '1 microsecond', note = :note::text, reason = coalesce(reason, 'SKIPPED'), error = coalesce(error, :note)
WHERE id = :id::bigint AND state IN ('ready', 'running', 'waiting')
RETURNING id
-- sqlite
UPDATE redrive_jobs SET
    state = 'dead', hold = NULL, slot = NULL, lease_id = NULL, worker_id = NULL, finished_at = :now,
    skipped_at = :now + 1, note = :note, reason = coalesce(reason, 'SKIPPED'), error = coalesce(error, :note)
WHERE id = :id AND state IN ('ready', 'running', 'waiting')
RETURNING id

-- name: shards_of
-- Return the shards of subscriptions, by topic, subscription and number; NULL stands for any.
-- postgres
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen::text AS seen,
    shard.until::text AS until, shard.final::text AS final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why
FROM redrive_shards AS shard
WHERE (:topic::text IS NULL OR topic = :topic) AND (:subscription::text IS NULL OR subscription = :subscription)
ORDER BY topic, subscription, shard
-- sqlite
SELECT
    shard.topic, shard.subscription, shard.shard, shard.job_id, shard.epoch, shard.turns, shard.seen,
    shard.until, shard.final, shard.at_id, shard.done_id,
    shard.unfinished, shard.ahead_id, shard.stuck_id, shard.stuck_why
FROM redrive_shards AS shard
WHERE (:topic IS NULL OR topic = :topic) AND (:subscription IS NULL OR subscription = :subscription)
ORDER BY topic, subscription, shard

-- name: subscription_delete
-- Delete a subscription and its rows; its jobs stay.
-- postgres
WITH done AS (DELETE FROM redrive_done WHERE topic = :topic::text AND subscription = :name::text),
shards AS (DELETE FROM redrive_shards WHERE topic = :topic AND subscription = :name)
DELETE FROM redrive_subscriptions WHERE topic = :topic AND name = :name
-- sqlite
DELETE FROM redrive_subscriptions WHERE topic = :topic AND name = :name

-- name: shard_final
-- Set the snapshot at which the shards of a subscription end.
-- Under the locks of the shards.
-- both
UPDATE redrive_shards SET final = :final::text::pg_snapshot
WHERE topic = :topic::text AND subscription = :subscription::text

-- name: shards_delete
-- Delete the shards of a subscription.
-- All of them have ended.
-- both
DELETE FROM redrive_shards WHERE topic = :topic::text AND subscription = :subscription::text
