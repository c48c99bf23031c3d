-- Writes the arguments and the policy of a thing.
-- Called by track for one that is tracked already.
UPDATE redrive_refreshes SET payload = :payload, own = :own WHERE schedule = :schedule AND key = :key
