-- Insert events of topics, in the order given.
-- Called by publish, and at the end of an attempt with a handler that has published.
INSERT INTO redrive_events (topic, key, slot, type, version, at, payload)
VALUES (:topic, :key, :slot, :type, :version, coalesce(:at, (SELECT now FROM redrive_clock)), :payload)
