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
-- Return those whose subscriptions publish their dead events, with the topic.
-- At the end of a delivery, in the same transaction.
-- many: rows
-- postgres
UPDATE redrive_jobs AS job SET
    skipped_at = job.finished_at,
    note = CASE
        WHEN subscription.dead_topic IS NULL THEN job.note
        ELSE coalesce(job.note || ', ', '') || 'published to the topic ' || subscription.dead_topic
    END
FROM unnest(:id::bigint[], :topic::text[], :subscription::text[]) AS given (id, topic, subscription)
JOIN redrive_subscriptions AS subscription
    ON subscription.topic = given.topic AND subscription.name = given.subscription AND subscription.dead = 'continue'
-- As in settle_succeeded: the planner must not use the index of dead jobs.
WHERE job.id = ANY (:id) AND job.id = given.id AND job.state || '' = 'dead' AND job.caught_at IS NULL
    AND job.skipped_at IS NULL
RETURNING job.id, subscription.dead_topic
-- sqlite
UPDATE redrive_jobs SET
    skipped_at = finished_at,
    note = coalesce(
        coalesce(note || ', ', '') || 'published to the topic ' || (
            SELECT dead_topic FROM redrive_subscriptions WHERE topic = :topic AND name = :subscription
        ),
        note
    )
WHERE id = :id AND state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL
    AND EXISTS (
        SELECT 1 FROM redrive_subscriptions
        WHERE topic = :topic AND name = :subscription AND dead = 'continue'
    )
RETURNING id, (SELECT dead_topic FROM redrive_subscriptions WHERE topic = :topic AND name = :subscription)

-- name: letters
-- Return what is published of dead deliveries: their arguments, their attempts, and their last errors.
-- both
SELECT job.id, job.origin, payload.payload, job.attempt, job.reason, job.error, (
    SELECT error_type FROM redrive_attempts
    WHERE job_id = job.id AND error_type IS NOT NULL
    ORDER BY lease_id DESC LIMIT 1
) AS error_type
FROM redrive_jobs AS job
JOIN redrive_payloads AS payload ON payload.job_id = job.id
WHERE job.id = ANY (:ids::bigint[])
ORDER BY job.id

-- name: letter_withhold
-- Say at the end of its note that the event of a dead delivery was not published. After a death its line waits again.
-- both
UPDATE redrive_jobs SET
    note = substr(note, 1, length(note) - length(:said::text)) || :instead::text,
    skipped_at = CASE WHEN skipped_at > finished_at THEN skipped_at END
WHERE id = :id::bigint
