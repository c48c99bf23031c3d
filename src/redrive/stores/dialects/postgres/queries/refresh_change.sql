-- Write the arguments and the policies of items.
-- Called by track for items that are tracked already.
UPDATE redrive_refreshes AS thing SET payload = given.payload, own = given.own
FROM unnest(:schedule::text[], :key::text[], :payload::bytea[], :own::text[]) AS given (schedule, key, payload, own)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_refreshes WHERE schedule = given.schedule AND key = given.key OFFSET 0
) AS found
WHERE thing.ctid = found.place
