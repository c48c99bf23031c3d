-- The statements of operations/events.py.

-- name: event_insert
-- Insert events of topics, in the order given.
-- transaction: last
-- postgres
INSERT INTO redrive_events (id, topic, xid, key, slot, type, version, at, payload)
-- Each id is taken here and not from a block that was reserved before: of two events of which one causes the other, the
-- cause then has the lower id. The transaction id is that of the outermost transaction, also inside a savepoint.
SELECT
    nextval('redrive_event_ids'), topic, pg_current_xact_id(), key, slot, type, version,
    coalesce(at, (SELECT now FROM redrive_clock)), payload
FROM (
    SELECT * FROM unnest(
        :topic::text[], :key::text[], :slot::integer[], :type::text[], :version::integer[], :at::timestamptz[],
        :payload::bytea[]
    ) WITH ORDINALITY AS given (topic, key, slot, type, version, at, payload, place)
    ORDER BY place
    -- A limit keeps the sort below the calls of nextval.
    LIMIT 1000000000
) AS ordered
-- sqlite
INSERT INTO redrive_events (topic, key, slot, type, version, at, payload)
VALUES (:topic, :key, :slot, :type, :version, coalesce(:at, (SELECT now FROM redrive_clock)), :payload)

-- name: line_skip
-- Let the events behind dead deliveries pass, unless their subscriptions stop at a dead event.
-- The instant is that of the death: a later one says that an operator has dealt with it.
-- At the end of a delivery, in the same transaction.
-- postgres
UPDATE redrive_jobs AS job SET skipped_at = job.finished_at
FROM unnest(:id::bigint[], :topic::text[], :subscription::text[]) AS given (id, topic, subscription)
JOIN redrive_subscriptions AS subscription
    ON subscription.topic = given.topic AND subscription.name = given.subscription AND subscription.dead = 'continue'
-- As in settle_succeeded: the planner must not use the index of dead jobs.
WHERE job.id = ANY (:id) AND job.id = given.id AND job.state || '' = 'dead' AND job.caught_at IS NULL
    AND job.skipped_at IS NULL
-- sqlite
UPDATE redrive_jobs SET skipped_at = finished_at
WHERE id = :id AND state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL
    AND EXISTS (
        SELECT 1 FROM redrive_subscriptions
        WHERE topic = :topic AND name = :subscription AND dead = 'continue'
    )
