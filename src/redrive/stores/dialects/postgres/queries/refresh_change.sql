-- Writes the arguments and the policies of things.
-- Called by track for those that are tracked already.
UPDATE redrive_refreshes AS thing SET payload = given.payload, own = given.own
FROM unnest(:schedule::text[], :key::text[], :payload::bytea[], :own::text[]) AS given (schedule, key, payload, own)
WHERE thing.schedule = given.schedule AND thing.key = given.key
