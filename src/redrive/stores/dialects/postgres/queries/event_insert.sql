-- Insert events of topics, in the order given.
-- Called by publish, and at the end of an attempt with a handler that has published.
-- transaction: last
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
